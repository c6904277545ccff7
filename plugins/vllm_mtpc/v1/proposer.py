"""Drafting on vLLM's V1 runner: the autoregressive part in vLLM's EAGLE loop, then the parallel part in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import CompilationMode

from mtpc.draft import Draft, Mode
from mtpc.errors import exits_with_message
from mtpc.methods.drafter import draft_budget
from mtpc.parallel.compiled import drafting_for_one
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import metrics
from vllm_mtpc.additional_config import draft_settings, v1_uses_prompt_lookup
from vllm_mtpc.dispatch import check_aux_hidden_states, drafter_of, folder_of
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.ranks import of_first_rank
from vllm_mtpc.request_parameters import has_grammar, ignore_new_limits, predictions_of
from vllm_mtpc.sleep_mode import keep_while_asleep
from vllm_mtpc.v1.base_proposer import BaseProposer
from vllm_mtpc.v1.costs import draft_repeatedly, measured_costs
from vllm_mtpc.v1.draft_lengths import BatchLengths
from vllm_mtpc.v1.last_accepted import last_accepted
from vllm_mtpc.v1.noise import draft_noise
from vllm_mtpc.v1.prompt_parts import with_prompt_tokens
from vllm_mtpc.v1.request_vocabularies import V1RequestVocabularies
from vllm_mtpc.v1.step import V1DraftStep


class Proposer(BaseProposer):
    """Drafts with an autoregressive part, a parallel part, or both.

    Its protocol is that of `BaseProposer`.

    Attributes:
        autoregressive: Whether there is an autoregressive part.  Without one there is no attention layer, and vLLM's
            draft loop does not run.
        drafts_nothing: Whether the autoregressive part only computes the state for the parallel part.  vLLM's loop then
            makes one draft step, whose token is not used.
        parallel: The parallel part; None if it drafts no token.
        draft_single: `ParallelPart.draft` for batch size 1.
        drafter_tokens: Maximum number of draft tokens of both parts; further ones come from prompt lookup.
        num_speculative_tokens: Draft tokens of the autoregressive part, as vLLM's loop uses this name.
        parallel_drafts: Draft tokens of the parallel part.
        lengths: Chooses draft lengths; None if all drafts have K tokens.
        vocabularies: Chooses draft vocabularies; None if there is no choice.
        reads_last_state: Whether the drafter reads the target's last hidden state, not one between two layers.
        request_ids: Requests of the coming step.
        request_states: vLLM's ``CachedRequestState`` of each.
        step: State of the running call of `propose`.
        is_timing: Whether the target's steps are being timed, without drafting.
        is_data_parallel: Whether other ranks serve other requests; all make equally many draft steps.
    """

    step: V1DraftStep
    model: Any
    num_speculative_tokens: int
    is_timing = is_data_parallel = False
    reads_last_state = True
    drafts_nothing = False

    @exits_with_message
    def __init__(self, vllm_config: Any, device: torch.device, runner: Any = None, *others: Any, **named: Any) -> None:
        super().__init__(vllm_config, device, runner, *others, **named)
        _, drafter = drafter_of(vllm_config)
        if drafter.autoregressive is not None and drafter.autoregressive.state_below is not None:
            self.reads_last_state = False
            runner.use_aux_hidden_state_outputs = True
        self.autoregressive = drafter.autoregressive is not None
        self.drafts_nothing = drafter.autoregressive is not None and not drafter.autoregressive.drafts
        self.is_data_parallel = vllm_config.parallel_config.data_parallel_size > 1
        self.vocabularies: V1RequestVocabularies | None = None
        self.lengths: BatchLengths | None = None
        self.request_ids: list[str] = []
        self.request_states: list[Any] = []
        self.drafter_tokens = self.num_speculative_tokens
        additional, async_scheduling = vllm_config.additional_config, vllm_config.scheduler_config.async_scheduling
        copies = v1_uses_prompt_lookup(additional, drafter.own_drafts, async_scheduling, device.type == "cpu")
        if copies or device.type == "cpu":  # on a CPU vLLM never schedules asynchronously
            longest, folder = self.drafter_tokens, folder_of(vllm_config)
            budget = draft_budget(drafter, longest, copies)
            table = CopyTable.of(folder)
            settings, predictions = draft_settings(additional), predictions_of(vllm_config)
            self.lengths = BatchLengths(budget, longest, settings, table, copies, device, predictions)
            self.drafter_tokens = budget.tokens

    @exits_with_message
    def load_model(self, target_model: nn.Module, *others: Any, **named: Any) -> None:
        """Load the drafter, which shares the target's embedding and output head where it reads them.

        Args:
            target_model: vLLM's model of the target.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Raises:
            MTPCError: The checkpoint is wrong, or the target cannot return the hidden state that the drafter reads.
        """
        if not self.reads_last_state:
            check_aux_hidden_states(target_model, self.vllm_config)
        self.final_norm = final_norm(target_model, self.hidden_states[:1])
        if self.autoregressive:
            super().load_model(target_model, *others, **named)
        else:
            self.model = self._get_model()
            self.supports_mm_inputs = False
            self._draft_attn_layer_names: set[str] = set()
        self.model.share_target(target_model)
        self.model.gather_rows(static=False)
        keep_while_asleep(self.model, self.model.draft_logits)
        self.vocabularies = V1RequestVocabularies.of(self.model.vocabularies, self.device, self.counts_metrics)
        # vLLM's loop makes only these tokens; ranks without requests join its steps in `dummy_run`.
        autoregressive, self.parallel_drafts = self.model.split(self.drafter_tokens)
        self.num_speculative_tokens = autoregressive + self.drafts_nothing
        self.parallel: Any = self.model.parallel if self.drafter_tokens else None
        self.draft_single: Any = None if self.parallel is None else self._compiled(self.parallel)
        if self.is_first_rank:
            self.model.announce(self.vllm_config, self.copies, "V1 runner")
        if self.counts_metrics:
            metrics.export(self.vllm_config, self.clock, None if self.vocabularies is None else self.vocabularies.tally)

    def _compiled(self, parallel: Any) -> Any:
        """Return `ParallelPart.draft` for batch size 1, compiled on a CPU unless ``--enforce-eager`` is set."""
        eager = self.vllm_config.compilation_config.mode == CompilationMode.NONE
        return parallel.draft if eager or self.device.type != "cpu" else drafting_for_one(parallel)

    def initialize_attn_backend(self, kv_cache_config: Any, *others: Any, **named: Any) -> None:
        """Initialize attention for an autoregressive part, else use metadata of the target's first KV cache group.

        Args:
            kv_cache_config: vLLM's ``KVCacheConfig``.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.
        """
        if self.autoregressive:
            super().initialize_attn_backend(kv_cache_config, *others, **named)
        else:
            self.draft_attn_groups: list[Any] = []
            self.kv_cache_gid = 0
            self.block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size

    @property
    def copies(self) -> bool:
        """Whether prompt lookup drafts as well."""
        return self.lengths is not None and self.lengths.controller.copies

    @torch.inference_mode()
    def dummy_run(self, num_tokens: int, *others: Any, **named: Any) -> None:
        """Run the largest draft of both parts for memory profiling, and compile the parallel part for batch size 1.

        The parallel part needs no synchronization between data-parallel ranks.

        Args:
            num_tokens: Scheduled tokens, one for each request.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.
        """
        if self.is_timing:
            return
        if self.autoregressive:
            super().dummy_run(num_tokens, *others, **named)
        if self.parallel is None:
            return
        rows = min(num_tokens, self.max_batch_size)
        drafts: list[tuple[int, Mode]] = [(rows, "mixed")] if rows > 1 else []
        for batch, mode in [*drafts, (1, "greedy"), (1, "sampled")]:
            self._dummy_parallel(batch, mode)

    def _dummy_parallel(self, batch: int, mode: Mode) -> None:
        """Run the parallel part once, with arbitrary states and tokens."""
        tokens = torch.zeros(batch, dtype=torch.int64, device=self.device)
        with torch.inference_mode(False):  # like the runner's tensors, to avoid recompilation
            temperature = torch.ones(batch, device=self.device)
        autoregressive = self.model.split(self.drafter_tokens)[0]
        noise = draft_noise(tokens, self.drafter_tokens, {}) if mode != "greedy" else None
        known = [self.hidden_states[tokens]] * (autoregressive + 1), [tokens] * (autoregressive + 1)
        step = V1DraftStep(*known, autoregressive, self.parallel_drafts, mode, temperature, noise, None)
        if self.copies:
            nothing = torch.zeros(batch, self.drafter_tokens, device=self.device)
            step.copying = Copying.begin(Copied(nothing.long(), nothing))._replace(done=autoregressive)
        self._draft_parallel(step)

    @torch.inference_mode()
    def time_steps(self, runner: Any) -> None:
        """Time the target's decoding steps and the drafter, unless the user has set ``step_cost``.

        Args:
            runner: vLLM's V1 runner.
        """
        if self.lengths is None or not self.lengths.is_timed:
            return

        drafted = 0 if self.drafts_nothing else self.num_speculative_tokens

        def draft(requests: int, mode: Mode = "greedy") -> None:
            if self.autoregressive:
                super(Proposer, self).dummy_run(requests)
                draft_repeatedly(self.model, self.hidden_states[:requests], drafted, mode)
            if self.parallel is not None and self.parallel_drafts:
                self._dummy_parallel(requests, mode)

        self.is_timing = True
        try:
            greedy, sampled = (draft, partial(draft, mode="sampled")) if self.drafter_tokens else (None, None)
            longest = self.lengths.controller.longest
            cost = measured_costs(runner, self.max_batch_size, longest, greedy, sampled)
        finally:
            self.is_timing = False
        self.lengths.controller.cost = cost
        if self.is_first_rank:
            self.model.announce_cost(cost)

    def _begin_step(
        self, ids: Sequence[str], requests: dict[str, Any], tokens: Tensor, unread: Tensor, input_batch: Any
    ) -> None:
        if self.vocabularies is not None:
            self.vocabularies.record_step(tokens, requests, input_batch, unread)
        if self.lengths is not None:
            with self.clock.resumed():
                self.lengths.begin_step(ids, requests, tokens, unread, input_batch.all_greedy)
                self.clock.lap("lengths")
        else:
            ignore_new_limits(ids, self.request_ids, requests)
        self.request_ids, self.request_states = list(ids), [requests[name] for name in ids]

    @torch.inference_mode()
    def propose(
        self,
        *,
        num_speculative_tokens: int,
        target_token_ids: Tensor,
        target_positions: Tensor,
        target_hidden_states: Tensor,
        next_token_ids: Tensor,
        token_indices_to_sample: Tensor | None,
        common_attn_metadata: Any,
        sampling_metadata: Any,
        num_rejected_tokens_gpu: Tensor | None = None,
        **named: Any,
    ) -> Tensor | list[list[int]]:
        """Draft.  The distributions, [B, K, V], are left for ``take_last_draft_probs``.

        Args:
            num_speculative_tokens: Maximum number of draft tokens of this step.
            target_token_ids: [T], all scheduled tokens.
            target_positions: [T], their positions.
            target_hidden_states: [T, d], their states.
            next_token_ids: int32 [B], the token that the target sampled after each request's last accepted token, or
                the prompt's next token during prefill.
            token_indices_to_sample: [B], index of each request's last accepted token among the scheduled ones; None
                for its last scheduled token.
            common_attn_metadata: vLLM's ``CommonAttentionMetadata``.
            sampling_metadata: vLLM's ``SamplingMetadata``.
            num_rejected_tokens_gpu: [B], passed on to vLLM's loop.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Draft tokens, int64 [B, K]; lists where `lengths` chooses, as drafts may differ in length.
        """
        seeded = sampling_metadata.generators
        with self.clock:
            num_drafts = min(num_speculative_tokens, self.drafter_tokens)
            copied = None
            if self.lengths is not None and num_drafts:
                is_fixed = bool(seeded) or self.is_data_parallel
                num_drafts = self.lengths.plan(num_speculative_tokens, is_fixed)
                # Even without proposals: a seeded request must draw from the mixture in any batch.
                copied = self.lengths.copied(num_drafts) if num_drafts else None
                self.clock.lap("lengths")
            states = self.final_norm(target_hidden_states) if self.reads_last_state else target_hidden_states
            lengths = common_attn_metadata.seq_lens_cpu_upper_bound[: len(self.request_states)].tolist()
            next_token_ids = with_prompt_tokens(next_token_ids, self.request_states, lengths)
            rows, positions = last_accepted(target_positions, token_indices_to_sample, common_attn_metadata)
            copying = None if copied is None else Copying.begin(copied)
            self.step = step = self._begin(
                num_drafts, states[rows], next_token_ids.long(), positions, sampling_metadata, copying
            )
            if self.autoregressive:  # even without draft tokens: it must write keys and values for later steps
                super().propose(
                    num_speculative_tokens=step.autoregressive + self.drafts_nothing,
                    target_token_ids=target_token_ids,
                    target_positions=target_positions,
                    target_hidden_states=states,
                    next_token_ids=next_token_ids,
                    token_indices_to_sample=token_indices_to_sample,
                    common_attn_metadata=common_attn_metadata,
                    sampling_metadata=sampling_metadata,
                    num_rejected_tokens_gpu=num_rejected_tokens_gpu,
                    **named,
                )
                if not step.autoregressive and not self.drafts_nothing:
                    self.clock.lap("draft step 1")
            draft = step.drafts(self._draft_parallel(step) if step.parallel else None)
            if step.parallel:
                self.clock.lap("parallel")
            if self.lengths is None:
                self._last_draft_probs = draft.probs
                return draft.tokens
            tokens, self._last_draft_probs = self.lengths.cut(draft, num_speculative_tokens, seeded)
            self.clock.lap("lengths")
        return tokens

    def _begin(
        self,
        num_drafts: int,
        states: Tensor,
        tokens: Tensor,
        positions: Tensor,
        sampling_metadata: Any,
        copying: Copying | None = None,
    ) -> V1DraftStep:
        """Create the state of a step, without synchronizing with the device."""
        numbers = self.vocabularies.choose(self.request_ids) if num_drafts and self.vocabularies is not None else None
        grammars = [row for row, request in enumerate(self.request_states) if has_grammar(request)]
        return V1DraftStep.begin(
            states, tokens, positions, self.model.split(num_drafts), sampling_metadata,
            self._enable_probabilistic_draft_probs, grammars, numbers, copying,
        )  # fmt: skip

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, None]:
        """Draft the autoregressive part's next token, int64 [B], from states [B, d]; vLLM's loop calls it."""
        if self.drafts_nothing:
            tokens = self.step.replace_state(of_first_rank(hidden_states))
            self.clock.lap("draft step 1")
            return tokens, None
        tokens = self.step.draft_next(self.model, of_first_rank(hidden_states))
        self.clock.lap(f"draft step {len(self.step.tokens) - 1}")
        return tokens, None

    def _draft_parallel(self, step: V1DraftStep) -> Draft:
        """Draft the parallel part's tokens, conditioned on all earlier ones."""
        draft = self.draft_single if len(step.tokens[0]) == 1 and not step.seeded else self.parallel.draft
        temperature = None if step.noise is None else step.temperature
        known = step.context()
        known = self.model.with_head_inputs(known._replace(states=of_first_rank(known.states)), step.numbers)
        drafted: Draft = draft(known, temperature, step.parallel_noise(), step.parallel, step.mode, step.copying)
        return drafted
