"""vLLM's own EAGLE loop on Model Runner V2, each request with the draft vocabulary of its language."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.draft_clock import DraftClock
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.request_maps import RequestMaps


class FastMTPSpeculator(EagleSpeculator):
    """Chooses the maps of a batch before vLLM drafts for it.

    They lie in a buffer that never moves, from which a captured graph reads them.
    """

    def __init__(self, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        super().__init__(vllm_config, device)
        self.req_states = req_states
        self.row_maps = torch.zeros(self.max_num_reqs, dtype=torch.int64, device=device)
        self.maps: RequestMaps | None = None
        self.clock = DraftClock.from_environment(device, get_tensor_model_parallel_rank(), self.dp_rank)

    def load_draft_model(self, target_model: nn.Module, target_attn_layer_names: set[str]) -> nn.Module:
        """Load the drafter, with embedding and head of the target, and gather the head's rows that it drafts from."""
        model = super().load_draft_model(target_model, target_attn_layer_names)
        model.gather_rows(static=True)
        self.final_norm = final_norm(target_model)
        if model.vocabularies is not None and model.vocabularies.detector is not None:
            model.maps = self.row_maps
            self.maps = RequestMaps(model.vocabularies.detector, self.device)
            self._follow(self.maps)
        return model

    def _follow(self, maps: RequestMaps) -> None:
        """Learn of the runner's requests as they come and go: a preempted one comes again with all of its text."""
        add, remove = self.req_states.add_request, self.req_states.remove_request

        @functools.wraps(add)
        def add_request(
            req_id: str, prompt_len: int, all_token_ids: list[int], num_computed_tokens: int, max_tokens: int
        ) -> None:
            maps.begin(req_id, all_token_ids)
            add(req_id, prompt_len, all_token_ids, num_computed_tokens, max_tokens)

        @functools.wraps(remove)
        def remove_request(req_id: str) -> Any:
            maps.forget([req_id])
            return remove(req_id)

        self.req_states.add_request, self.req_states.remove_request = add_request, remove_request

    def _sampled(self, slots: Tensor, num_sampled: Tensor) -> Tensor:
        """The tokens of this step: int32 [B, K + 1], -1 where there is none."""
        width = self.num_speculative_steps + 1
        age = torch.arange(width, device=slots.device)  # 0: the newest
        newest = self.req_states.total_len.gpu[slots, None] - 1
        tokens = self.req_states.all_token_ids.gpu[slots[:, None], (newest - age).clamp_min(0)]
        return torch.where(age < num_sampled[:, None], tokens, -1).flip(1)

    @torch.inference_mode()
    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Tensor,
        aux_hidden_states: list[Tensor] | None,
        num_sampled: Tensor,
        *arguments: Any,
        **named: Any,
    ) -> Tensor:
        """Drafted tokens, int64 [B, K], by vLLM.

        last_hidden_states: [T, d] of all scheduled tokens.  num_sampled: int32 [B], of this step.
        """
        if self.maps is not None and not named.get("dummy_run"):
            rows = input_batch.num_reqs
            requests = input_batch.req_ids[:rows]
            self.maps.sampled(requests, self._sampled(input_batch.idx_mapping[:rows], num_sampled[:rows]))
            self.row_maps[:rows].copy_(self.maps.choose(requests), non_blocking=True)
        with self.clock:
            drafts: Tensor = super().propose(
                input_batch,
                attn_metadata,
                slot_mappings,
                self.final_norm(last_hidden_states),
                aux_hidden_states,
                num_sampled,
                *arguments,
                **named,
            )
        return drafts
