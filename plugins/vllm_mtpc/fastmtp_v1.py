"""vLLM's own EAGLE loop on the V1 model runner, each request with the draft vocabulary of its language."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft_clock import DraftClock
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.request_maps import RequestMaps


class FastMTPProposer(EagleProposer):
    """Chooses the maps of a batch before vLLM drafts for it."""

    def __init__(self, vllm_config: Any, device: torch.device, runner: Any = None) -> None:
        super().__init__(vllm_config, device, runner)
        self.clock = DraftClock.from_environment(device, get_tensor_model_parallel_rank(), self.dp_rank)
        self.maps: RequestMaps | None = None

    def load_model(self, target_model: nn.Module) -> None:
        """Load the drafter, with embedding and head of the target, and gather the head's rows that it drafts from."""
        super().load_model(target_model)
        self.final_norm = final_norm(target_model)
        self.model.gather_rows(static=False)
        vocabularies = self.model.vocabularies
        if vocabularies is not None and vocabularies.detector is not None:
            self.maps = RequestMaps(vocabularies.detector, self.device)

    def prepare_next_token_ids_padded(
        self, sampled_token_ids: Tensor, requests: dict[str, Any], gpu_input_batch: Any, discard_request_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Called before `propose`, with what the target said: int [B, K + 1], -1 for a token that was rejected.

        requests: all that are not finished.  discard_request_mask: bool [at least B], whose prompt is not read yet.
        """
        if self.maps is not None:
            ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
            self.maps.forget(self.maps.readings.keys() - requests.keys())
            for request in ids:
                if request not in self.maps.readings:
                    self.maps.begin(request, requests[request].prompt_token_ids or [])
            unread = discard_request_mask[: len(ids), None]
            self.maps.sampled(ids, sampled_token_ids.masked_fill(unread, -1))
            self.model.maps = self.maps.choose(ids)
        found: tuple[Tensor, Tensor] = super().prepare_next_token_ids_padded(
            sampled_token_ids, requests, gpu_input_batch, discard_request_mask
        )
        return found

    def _greedy_sample(self, hidden_states: Tensor) -> Tensor:
        """The most probable tokens, int64 [n], of states [n, d]; only tokens that can be drafted get logits."""
        tokens: Tensor = self.model.get_top_tokens(hidden_states)
        return tokens

    @torch.inference_mode()
    def propose(self, *, target_hidden_states: Tensor, **named: Any) -> Tensor:
        """Drafted tokens, int64 [B, K], by vLLM; target_hidden_states: [T, d] of all scheduled tokens."""
        with self.clock:
            states = self.final_norm(target_hidden_states)
            drafts: Tensor = super().propose(target_hidden_states=states, **named)
        return drafts
