"""vLLM's own EAGLE loop on the V1 model runner, each request with the draft vocabulary of its language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft_clock import DraftClock
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.last_accepted import last_accepted
from vllm_mtpc.noise import draft_noise
from vllm_mtpc.request_maps import RequestMaps


class FastMTPProposer(EagleProposer):
    """Chooses the maps of a batch before vLLM drafts for it, and draws from no more tokens than these.

    uniforms: float64 [B] for each draft that is still to be drawn in this step.
    """

    uniforms: Iterator[Tensor]

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

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, Tensor | None]:
        """The next draft of each request, int64 [B], of states [B, d], and its distribution, float32 [B, V].

        There is none where all drafts are the most probable tokens.
        """
        if not self._draws(sampling_metadata):
            return self._greedy_sample(hidden_states), None
        drawn: tuple[Tensor, Tensor] = self.model.draw_tokens(
            hidden_states, sampling_metadata.temperature, next(self.uniforms)
        )
        return drawn

    def _draws(self, sampling_metadata: Any) -> bool:
        return self._enable_probabilistic_draft_probs and not sampling_metadata.all_greedy

    @torch.inference_mode()
    def propose(
        self,
        *,
        num_speculative_tokens: int,
        target_positions: Tensor,
        target_hidden_states: Tensor,
        token_indices_to_sample: Tensor | None,
        common_attn_metadata: Any,
        sampling_metadata: Any,
        **named: Any,
    ) -> Tensor:
        """Drafted tokens, int64 [B, K], by vLLM; target_hidden_states: [T, d] of all scheduled tokens."""
        with self.clock:
            if self._draws(sampling_metadata):
                _, positions = last_accepted(target_positions, token_indices_to_sample, common_attn_metadata)
                generators = sampling_metadata.generators
                noise = draft_noise(positions, num_speculative_tokens, generators, torch.float64)
                self.uniforms = iter(noise.unbind(1))
            drafts: Tensor = super().propose(
                num_speculative_tokens=num_speculative_tokens,
                target_positions=target_positions,
                target_hidden_states=self.final_norm(target_hidden_states),
                token_indices_to_sample=token_indices_to_sample,
                common_attn_metadata=common_attn_metadata,
                sampling_metadata=sampling_metadata,
                **named,
            )
        return drafts
