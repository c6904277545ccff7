"""vLLM's own proposers on the V1 runner, with draft vocabularies by language and prompt lookup."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

from mtpc.draft import Mode
from mtpc.draft_length.budget import DraftBudget
from mtpc.errors import MTPCError, exits_with_message
from mtpc.prompt_lookup.mixture import Copying
from mtpc.prompt_lookup.table import CopyTable
from mtpc.serving.settings import COPY
from vllm_mtpc import metrics
from vllm_mtpc.additional_config import SECTION, draft_settings, uses_prompt_lookup
from vllm_mtpc.native.head import NativeHead, restricted_head
from vllm_mtpc.native.settings import native_vocabularies
from vllm_mtpc.ranks import check_ranks
from vllm_mtpc.request_parameters import has_grammar, ignore_new_limits, predictions_of
from vllm_mtpc.sleep_mode import keep_while_asleep
from vllm_mtpc.v1.costs import draft_repeatedly, measured_costs
from vllm_mtpc.v1.draft_lengths import BatchLengths
from vllm_mtpc.v1.last_accepted import last_accepted
from vllm_mtpc.v1.request_vocabularies import V1RequestVocabularies
from vllm_mtpc.v1.step import V1DraftStep
from vllm_mtpc.whole_logits import WholeLogits

logger = logging.getLogger(f"vllm.{__name__}")


class NativeProposer(SpecDecodeBaseProposer):
    """A base before one of vLLM's proposers, whose loop and verification stay as they are.

    With prompt lookup, the loop's tokens are drawn by `V1DraftStep`, from the mixture.  The loop makes as many as
    `lengths` plans, and prompt lookup may continue them.

    Its protocol is that of vLLM's proposers, after `begin`; and `time_steps` on a CPU.

    Attributes:
        head: The output head that is restricted to draft vocabularies; None if drafts are from all tokens.
        vocabularies: Chooses draft vocabularies; None if there is no choice.
        lengths: Prompt lookup, and the choice of draft lengths; None if prompt lookup is off.
        request_ids: Ids of the batch's requests, without prompt lookup.
        grammars: Indices of requests with a grammar, with prompt lookup.
        step: State of the running call of `propose`, with prompt lookup.
        is_timing: Whether the target's steps are being timed, without drafting.
    """

    head: NativeHead | None = None
    vocabularies: V1RequestVocabularies | None = None
    lengths: BatchLengths | None = None
    request_ids: frozenset[str] = frozenset()
    grammars: list[int]
    step: V1DraftStep
    is_timing = False

    @classmethod
    @exits_with_message
    def begin(cls, proposer: Any) -> None:
        """Make a proposer of vLLM's one of this class as well, once its model is loaded.

        Args:
            proposer: vLLM's.

        Raises:
            MTPCError: Ranks differ, a file is wrong, the output head cannot be restricted (see `NativeHead`), or
                prompt lookup cannot join the proposer's loop.
        """
        check_ranks(proposer.vllm_config)
        proposer.__class__ = type(cls.__name__, (cls, type(proposer)), {})
        proposer._restrict()
        proposer._begin_copying()

    def _restrict(self) -> None:
        """Restrict the output head to draft vocabularies, if there are any."""
        vocabularies = native_vocabularies(self.vllm_config)
        if vocabularies is None:
            return
        self.head = restricted_head(self, vocabularies, static=False)
        keep_while_asleep(self.model, self.head)
        counts_metrics = metrics.enabled(get_tensor_model_parallel_rank())
        self.vocabularies = V1RequestVocabularies.of(vocabularies, self.device, counts_metrics)
        if self.vocabularies is not None and counts_metrics:
            metrics.export(self.vllm_config, None, self.vocabularies.tally)

    def _begin_copying(self) -> None:
        """Let prompt lookup draft as well, if it is on."""
        config, longest = self.vllm_config, self.num_speculative_tokens
        if not uses_prompt_lookup(config.additional_config):
            return
        if super().propose.__func__ is not SpecDecodeBaseProposer.propose:  # it need not call `_sample_draft_tokens`
            raise MTPCError(
                f"additional-config {SECTION}.{COPY} is not for {config.speculative_config.draft_model_config.model}, "
                f"which has a draft loop of its own on the V1 model runner: remove it."
            )
        table = CopyTable.of(Path(config.speculative_config.draft_model_config.model))
        settings, predictions = draft_settings(config.additional_config), predictions_of(config)
        budget = DraftBudget(longest, longest)
        self.lengths = BatchLengths(budget, longest, settings, table, True, self.device, predictions)

    def prepare_next_token_ids_padded(
        self,
        sampled_token_ids: Tensor,
        requests: dict[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: Tensor,
        *others: Any,
        **named: Any,
    ) -> tuple[Tensor, Tensor]:
        """Read the tokens that the target has just emitted; vLLM calls it before ``propose``.

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
        given = sampled_token_ids, requests, gpu_input_batch, discard_request_mask
        if self.head is not None and self.vocabularies is not None:
            self.head.numbers = self.vocabularies.record_and_choose(*given)
        ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
        if self.lengths is None:
            ignore_new_limits(ids, self.request_ids, requests)
            self.request_ids = frozenset(ids)
        else:
            unread = discard_request_mask[: len(ids)]
            self.lengths.begin_step(ids, requests, sampled_token_ids, unread, gpu_input_batch.all_greedy)
            self.grammars = [row for row, name in enumerate(ids) if has_grammar(requests[name])]
        prepared: tuple[Tensor, Tensor] = super().prepare_next_token_ids_padded(*given, *others, **named)
        return prepared

    @torch.inference_mode()
    def propose(
        self,
        *,
        num_speculative_tokens: int,
        target_positions: Tensor,
        target_hidden_states: Tensor,
        next_token_ids: Tensor,
        token_indices_to_sample: Tensor | None,
        common_attn_metadata: Any,
        sampling_metadata: Any,
        **named: Any,
    ) -> Tensor | list[list[int]]:
        """Draft in vLLM's loop.  The distributions, [B, K, V], are left for ``take_last_draft_probs``.

        Args:
            num_speculative_tokens: Maximum number of draft tokens of this step.
            target_positions: [T], positions of all scheduled tokens.
            target_hidden_states: [T, d], their states.
            next_token_ids: int32 [B], the token after each request's last accepted one.
            token_indices_to_sample: [B], index of each request's last accepted token among the scheduled ones; None
                for its last scheduled token.
            common_attn_metadata: vLLM's ``CommonAttentionMetadata``.
            sampling_metadata: vLLM's ``SamplingMetadata``.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Draft tokens, int64 [B, K]; lists with prompt lookup, as drafts may differ in length.
        """
        lengths, seeded, drafts = self.lengths, sampling_metadata.generators, num_speculative_tokens
        if lengths is not None and drafts:
            # Data-parallel ranks make equally many passes.
            is_fixed = bool(seeded) or self.vllm_config.parallel_config.data_parallel_size > 1
            drafts = lengths.plan(num_speculative_tokens, is_fixed)
            copied = lengths.copied(drafts) if drafts else None
            last, positions = last_accepted(target_positions, token_indices_to_sample, common_attn_metadata)
            self.step = V1DraftStep.begin(
                target_hidden_states[last], next_token_ids.long(), positions, (drafts, 0), sampling_metadata,
                self._enable_probabilistic_draft_probs, self.grammars,
                copying=None if copied is None else Copying.begin(copied),
            )  # fmt: skip
        tokens: Tensor = super().propose(
            num_speculative_tokens=drafts,
            target_positions=target_positions,
            target_hidden_states=target_hidden_states,
            next_token_ids=next_token_ids,
            token_indices_to_sample=token_indices_to_sample,
            common_attn_metadata=common_attn_metadata,
            sampling_metadata=sampling_metadata,
            **named,
        )
        if lengths is None or not num_speculative_tokens:
            return tokens
        cut, self._last_draft_probs = lengths.cut(self.step.drafts(None), num_speculative_tokens, seeded)
        return cut

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, Tensor | None]:
        """Draft the next token, int64 [B], from states [B, d]; vLLM's loop calls it."""
        if self.lengths is not None:
            return self.step.draft_next(WholeLogits(self.model.compute_logits), hidden_states), None
        drafted: tuple[Tensor, Tensor | None] = super()._sample_draft_tokens(hidden_states, sampling_metadata)
        return drafted

    def dummy_run(self, num_tokens: int, *others: Any, **named: Any) -> None:
        """Run the draft model, unless the target alone is timed.

        Args:
            num_tokens: Scheduled tokens.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.
        """
        if not self.is_timing:
            super().dummy_run(num_tokens, *others, **named)

    @torch.inference_mode()
    def time_steps(self, runner: Any) -> None:
        """Time the target's decoding steps and the draft model, if draft lengths are chosen by their costs.

        Args:
            runner: vLLM's V1 runner.
        """
        if self.lengths is None or not self.lengths.is_timed:
            return

        def draft(requests: int, mode: Mode = "greedy") -> None:
            super(NativeProposer, self).dummy_run(requests)
            model, states = WholeLogits(self.model.compute_logits), self.hidden_states[:requests]
            draft_repeatedly(model, states, self.num_speculative_tokens, mode)

        self.is_timing = True
        try:
            longest, sampled = self.lengths.controller.longest, partial(draft, mode="sampled")
            cost = measured_costs(runner, self.max_batch_size, longest, draft, sampled)
        finally:
            self.is_timing = False
        self.lengths.controller.cost = cost
        if get_tensor_model_parallel_rank() == 0:
            logger.info("%s: %s.", type(self.model).__name__, cost.summary)
