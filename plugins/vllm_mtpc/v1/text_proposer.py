"""Drafting from the request's text on vLLM's V1 runner."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft_model.part import TextPart
from mtpc.errors import exits_with_message
from mtpc.memory import check_batch_memory
from mtpc.methods import DraftMethod
from mtpc.metrics.draft_clock import DraftClock
from mtpc.serving.announcement import Shares, startup_line
from vllm_mtpc import metrics
from vllm_mtpc.dispatch import drafter_of, folder_of
from vllm_mtpc.ranks import check_ranks
from vllm_mtpc.v1.last_accepted import next_tokens
from vllm_mtpc.v1.lazy_verification import LAST_DRAFT, lazy_rows
from vllm_mtpc.v1.text_drafts import TextDrafts

logger = logging.getLogger(f"vllm.{__name__}")


class TextProposer(EagleProposer):
    """Drafts with a text part on the first tensor-parallel rank, without a draft model in vLLM.

    Protocol: vLLM calls `load_model` and `initialize_attn_backend` once.  In each decoding step it calls
    `prepare_next_token_ids_padded` with the emitted tokens, then `propose`, then ``take_last_draft_probs``.

    Attributes:
        drafts: Drafts for vLLM's requests.
        counts_metrics: Whether this rank counts metrics.
        is_first_rank: Whether this is the first tensor-parallel rank.
    """

    drafts: TextDrafts
    counts_metrics = is_first_rank = False

    @exits_with_message
    def __init__(self, vllm_config: Any, device: torch.device, runner: Any = None, *others: Any, **named: Any) -> None:
        check_ranks(vllm_config)
        super().__init__(vllm_config, device, runner, *others, **named)
        rank = get_tensor_model_parallel_rank()
        self.is_first_rank, self.counts_metrics = rank == 0, metrics.enabled(rank)
        self.clock = DraftClock.from_environment(device, rank, self.dp_rank, metered=self.counts_metrics)

    @exits_with_message
    def load_model(self, target_model: nn.Module, *others: Any, **named: Any) -> None:
        """Load the text part on the first rank.

        Args:
            target_model: vLLM's model of the target, which is not used.
            others: Further arguments of vLLM's.
            named: Further arguments of vLLM's.

        Raises:
            MTPCError: See `DraftMethod.text`.
        """
        self.supports_mm_inputs = False
        part = None
        if self.is_first_rank:
            folder, (method, drafter) = folder_of(self.vllm_config), drafter_of(self.vllm_config)
            part = method.text(folder, drafter, self.vllm_config.model_config.tokenizer, self.device)
            assert part is not None  # part of the contract: the draft method has set `reads_text`
            part.verifies_lazily = get_tensor_model_parallel_world_size() == 1
            self._announce(folder, method, part)
        self.drafts = TextDrafts(part)
        if self.counts_metrics:
            metrics.export(self.vllm_config, self.clock, None)

    def _announce(self, folder: Path, method: DraftMethod, part: TextPart) -> None:
        """Log what drafts and with how much memory."""
        drafts = self.num_speculative_tokens
        shares = Shares(0, 0, text=drafts)
        kept = f"the text part takes {part.memory() / 1e6:,.1f} MB"
        memory = check_batch_memory(self.max_batch_size, drafts, part.vocab_size)
        logger.info(startup_line(folder, method, shares, "drafting from the request's text", kept, memory, "V1 runner"))

    def initialize_attn_backend(self, kv_cache_config: Any, *others: Any, **named: Any) -> None:
        """Use metadata of the target's first KV cache group, as there is no attention layer.

        Args:
            kv_cache_config: vLLM's ``KVCacheConfig``.
            others: Further arguments of vLLM's.
            named: Further arguments of vLLM's.
        """
        self.kv_cache_gid = 0
        self.block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size

    def dummy_run(self, num_tokens: int, *others: Any, **named: Any) -> None:
        """Allocate the distributions of the largest draft, for memory profiling.

        Args:
            num_tokens: Scheduled tokens, one for each request.
            others: Further arguments of vLLM's.
            named: Further arguments of vLLM's.
        """
        if self._enable_probabilistic_draft_probs:
            rows, vocab_size = min(num_tokens, self.max_batch_size), self.vllm_config.model_config.get_vocab_size()
            torch.empty(rows, self.num_speculative_tokens, vocab_size, dtype=torch.float32, device=self.device)

    def prepare_next_token_ids_padded(
        self,
        sampled_token_ids: Tensor,
        requests: Any,
        gpu_input_batch: Any,
        discard_request_mask: Tensor,
        *others: Any,
        **named: Any,
    ) -> tuple[Tensor, Tensor]:
        """Read the emitted tokens and find the last one of each request; vLLM calls it before `propose`.

        Args:
            sampled_token_ids: int [B, K + 1], -1 for rejected tokens.
            requests: All unfinished requests of vLLM by id.
            gpu_input_batch: vLLM's input batch.
            discard_request_mask: bool [at least B], whether a part of the prompt is still to be prefilled.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Returns:
            The last emitted token and the number of emitted tokens of each request, int32 [B] both.
        """
        ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
        unread = discard_request_mask[: len(ids)]
        with self.clock.resumed():
            self.drafts.begin_step(ids, requests, sampled_token_ids, unread)
            self.clock.lap("text")
        if self.device.type == "cpu":
            return next_tokens(sampled_token_ids, requests, gpu_input_batch, unread, gpu_input_batch.vocab_size)
        prepared: tuple[Tensor, Tensor] = super().prepare_next_token_ids_padded(
            sampled_token_ids, requests, gpu_input_batch, discard_request_mask, *others, **named
        )
        return prepared

    def propose(self, *, num_speculative_tokens: int, sampling_metadata: Any, **named: Any) -> list[list[int]]:
        """Draft.  The distributions, [B, W, V] or `lazy_rows`, are left for ``take_last_draft_probs``.

        Args:
            num_speculative_tokens: Maximum number of draft tokens of this step.
            sampling_metadata: vLLM's ``SamplingMetadata``.
            named: Further arguments of vLLM's.

        Returns:
            The draft tokens of each request, which differ in number.
        """
        greedy = sampling_metadata.all_greedy or not self._enable_probabilistic_draft_probs
        temperatures = [0.0] * len(self.drafts.ids) if greedy else sampling_metadata.temperature.tolist()
        with self.clock:
            draft = self.drafts.draft(num_speculative_tokens, temperatures, sampling_metadata.generators)
            probs, LAST_DRAFT.lazy = draft.probs, draft.lazy
            if draft.lazy is not None:
                probs = lazy_rows(draft.lazy.stated, self.drafts.rows, len(draft.tokens))
            self._last_draft_probs = None if probs is None else probs.to(self.device)
            self.clock.lap("text")
        return draft.tokens
