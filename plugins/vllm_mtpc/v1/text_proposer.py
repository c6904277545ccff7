"""Drafting from the request's text on vLLM's V1 runner."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed import get_tensor_model_parallel_world_size

from mtpc.draft_length.cost import DEFAULT_COSTS
from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import TextPart
from mtpc.errors import exits_with_message
from mtpc.memory import check_batch_memory
from mtpc.methods import DraftMethod
from mtpc.serving.announcement import Shares, startup_line
from vllm_mtpc import metrics
from vllm_mtpc.additional_config import draft_settings, uses_prompt_lookup
from vllm_mtpc.dispatch import drafter_of, folder_of
from vllm_mtpc.request_parameters import predictions_of
from vllm_mtpc.v1.base_proposer import BaseProposer
from vllm_mtpc.v1.costs import measured_costs
from vllm_mtpc.v1.lazy_verification import LAST_DRAFT, lazy_rows
from vllm_mtpc.v1.text_drafts import TextDrafts

logger = logging.getLogger(f"vllm.{__name__}")


class TextProposer(BaseProposer):
    """Drafts with a text part on the first tensor-parallel rank, without a draft model in vLLM.

    Its protocol is that of `BaseProposer`.

    Attributes:
        drafts: Drafts for vLLM's requests.
    """

    drafts: TextDrafts

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
        drafting = None
        if self.is_first_rank:
            folder, (method, drafter) = folder_of(self.vllm_config), drafter_of(self.vllm_config)
            part = method.text(folder, drafter, self.vllm_config.model_config.tokenizer, self.device)
            assert part is not None  # part of the contract: the draft method has set `reads_text`
            part.verifies_lazily = get_tensor_model_parallel_world_size() == 1
            drafting = self._drafting(part, folder, drafter.own_drafts)
            self._announce(folder, method, drafting)
        self.drafts = TextDrafts(drafting, predictions_of(self.vllm_config))
        if self.counts_metrics:
            metrics.export(self.vllm_config, self.clock, None)

    def _drafting(self, part: TextPart, folder: Path, own_drafts: int) -> TextDrafting:
        """Return who drafts how long, by the user's settings; on a GPU lengths adapt only by costs that are set."""
        additional, cost = self.vllm_config.additional_config, None
        settings, copies = draft_settings(additional), uses_prompt_lookup(additional, not own_drafts)
        if settings.adaptive:
            cost = settings.step_cost or (DEFAULT_COSTS if self.device.type == "cpu" else None)
        drafts = self.num_speculative_tokens
        return TextDrafting.of(part, folder, own_drafts, drafts, copies=copies, cost=cost, ragged=True)

    def _announce(self, folder: Path, method: DraftMethod, drafting: TextDrafting) -> None:
        """Log what drafts and with how much memory."""
        part, drafts = drafting.part, self.num_speculative_tokens
        kept = f"the text part takes {part.memory() / 1e6:,.1f} MB"
        memory = check_batch_memory(self.max_batch_size, drafts, part.vocab_size)
        more = [*drafting.facts, kept, memory, "V1 runner"]
        by_part = drafting.drafts_by_part or drafts
        shares = Shares(0, 0, copied=drafts - by_part, text=by_part)
        logger.info(startup_line(folder, method, shares, "drafting from the request's text", *more))

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

    def time_steps(self, runner: Any) -> None:
        """Time the target's decoding steps and the text part, unless the user has set ``step_cost``.

        Args:
            runner: vLLM's V1 runner.
        """
        settings = draft_settings(self.vllm_config.additional_config)
        if not settings.adaptive or settings.step_cost is not None:
            return
        drafting = self.drafts.drafting

        def draft(requests: int) -> None:
            if drafting is not None:
                drafting.dummy_draft(requests)

        cost = measured_costs(runner, self.max_batch_size, self.num_speculative_tokens, draft, draft)
        if drafting is not None:
            drafting.use_cost(cost)
            logger.info("%s: %s.", folder_of(self.vllm_config), cost.summary)

    def _begin_step(
        self, ids: Sequence[str], requests: dict[str, Any], tokens: Tensor, unread: Tensor, input_batch: Any
    ) -> None:
        with self.clock.resumed():
            self.drafts.begin_step(ids, requests, tokens, unread)
            self.clock.lap("text")

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
