"""Drafting with MTPC's circuits on vLLM's V1 model runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import CompilationMode
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft_clock import DraftClock
from mtpc.drafter import Draft
from mtpc.drafter.drafter import Mode
from mtpc.drafter.single import drafting_for_one
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.last_accepted import last_accepted
from vllm_mtpc.noise import draft_noise


class MTPCProposer(EagleProposer):
    """Drafts all tokens in one shot from the target's last hidden state; no attention, no KV cache.

    The target has already sampled the next token when `propose` is called: the draft is conditioned on it.
    """

    def __init__(self, vllm_config: Any, device: torch.device, runner: Any = None) -> None:
        super().__init__(vllm_config, device, runner)
        self.clock = DraftClock.from_environment(device, get_tensor_model_parallel_rank(), self.dp_rank)

    def load_model(self, target_model: nn.Module) -> None:
        """Load the drafter; it shares nothing with the target and adds no attention layers."""
        self.model = self._get_model()
        self.final_norm = final_norm(target_model)
        self.drafter = self.model.drafter
        self.draft_one = self._compiled()
        self.supports_mm_inputs = False
        self._draft_attn_layer_names: set[str] = set()

    def _compiled(self) -> Callable[..., Draft]:
        """`Drafter.draft` for a batch of one: compiled on a CPU, unless ``--enforce-eager`` wants nothing compiled."""
        eager = self.vllm_config.compilation_config.mode == CompilationMode.NONE
        if eager or self.device.type != "cpu":
            return self.drafter.draft
        return drafting_for_one(self.drafter)

    def initialize_attn_backend(self, kv_cache_config: Any, kernel_block_sizes: list[int] | None = None) -> None:
        """Nothing to initialise; the runner hands over metadata of the target's first KV cache group."""
        self.draft_attn_groups: list[Any] = []
        self.kv_cache_gid = 0
        self.block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size

    @torch.inference_mode()
    def dummy_run(
        self,
        num_tokens: int,
        use_cudagraphs: bool = True,
        is_graph_capturing: bool = False,
        slot_mappings: dict[str, Tensor] | None = None,
    ) -> None:
        """The largest draft, so that memory profiling sees it, and drafts of one request, so that they are compiled.

        There is nothing to synchronise between ranks.
        """
        rows = min(num_tokens, self.max_batch_size)
        drafts: list[tuple[int, Mode]] = [(rows, "mixed")] if rows > 1 else []
        for batch, mode in [*drafts, (1, "greedy"), (1, "sampled")]:
            tokens = torch.zeros(batch, dtype=torch.int64, device=self.device)
            with torch.inference_mode(False):  # a tensor of the kind that the runner hands over, or it compiles again
                temperature = torch.ones(batch, device=self.device)
            self._draft(self.hidden_states[tokens], tokens, temperature, tokens, {}, self.drafter.max_drafts, mode)

    def _draft(
        self,
        hidden: Tensor,
        tokens: Tensor,
        temperature: Tensor,
        positions: Tensor,
        generators: dict[int, torch.Generator],
        num_drafts: int,
        mode: Mode,
    ) -> Draft:
        draft = self.draft_one if len(hidden) == 1 else self.drafter.draft
        if mode == "greedy":
            return draft(hidden, tokens, None, None, num_drafts, mode)
        noise = draft_noise(positions, self.drafter.noise_size, generators)
        return draft(hidden, tokens, temperature, noise, num_drafts, mode)

    @torch.inference_mode()
    def propose(
        self,
        num_speculative_tokens: int,
        target_token_ids: Tensor,
        target_positions: Tensor,
        target_hidden_states: Tensor,
        next_token_ids: Tensor,
        token_indices_to_sample: Tensor | None,
        common_attn_metadata: Any,
        sampling_metadata: Any,
        mm_embed_inputs: tuple[list[Tensor], Tensor] | None = None,
        num_rejected_tokens_gpu: Tensor | None = None,
        slot_mappings: Any = None,
    ) -> Tensor:
        """Drafted tokens, int64 [B, K]; their distributions [B, K, V] are left for `take_last_draft_probs`.

        target_hidden_states: [T, d] of all scheduled tokens; token_indices_to_sample: [B], the row of each
        request's last accepted token (None: its last scheduled one); next_token_ids: int32 [B], the token that
        the target sampled after it, or the prompt's next one while a prompt is still being read.
        """
        self.num_speculative_tokens = num_speculative_tokens
        self._last_draft_probs = None
        if num_speculative_tokens == 0:
            return next_token_ids.new_empty((next_token_ids.shape[0], 0), dtype=torch.int64)
        rows, positions = last_accepted(target_positions, token_indices_to_sample, common_attn_metadata)
        with self.clock:
            draft = self._draft(
                self.final_norm(target_hidden_states[rows]),
                next_token_ids.long(),
                sampling_metadata.temperature,
                positions,
                sampling_metadata.generators,
                num_speculative_tokens,
                self._mode(sampling_metadata),
            )
        self._last_draft_probs = draft.probs
        return draft.tokens

    def _mode(self, sampling_metadata: Any) -> Mode:
        """How to draft, from facts that are known without asking the device."""
        if not self._enable_probabilistic_draft_probs or sampling_metadata.all_greedy:
            return "greedy"
        return "sampled" if sampling_metadata.all_random else "mixed"
