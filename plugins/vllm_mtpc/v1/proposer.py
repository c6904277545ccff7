"""Drafting on vLLM's V1 model runner: the autoregressive part in vLLM's own EAGLE loop, then the parallel part in one shot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import CompilationMode
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft import Draft, Mode
from mtpc.draft_length.cost import measured
from mtpc.errors import exits_with_message
from mtpc.methods.drafter import draft_budget
from mtpc.metrics.draft_clock import DraftClock
from mtpc.parallel.compiled import drafting_for_one
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import metrics
from vllm_mtpc.additional import section, v1_copies
from vllm_mtpc.dispatch import check_hands_over, drafter_of, folder_of
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.ranks import check_ranks, of_first_rank, seconds_of_first_rank
from vllm_mtpc.v1.draft_lengths import BatchLengths
from vllm_mtpc.v1.last_accepted import last_accepted, next_tokens
from vllm_mtpc.v1.noise import draft_noise
from vllm_mtpc.v1.prompt_parts import with_prompt_tokens
from vllm_mtpc.v1.request_vocabularies import RequestVocabularies
from vllm_mtpc.v1.step import Step


class Proposer(EagleProposer):
    """Drafts with both parts of a drafter, each of which may be missing; see `propose`.

    One decoding step: `prepare_next_token_ids_padded` with what the target has emitted, then `propose`.

    serial: whether there is an autoregressive part.  Without one, no loop of vLLM's runs and there is no attention layer.
    window: the parallel part, if any draft is left to it.  lengths: chooses how long drafts are; None: all have K tokens.
    reads_last: whether the drafter reads the target's last states; otherwise vLLM hands over those between its layers.
    own: draft tokens of both parts; what goes beyond them is copied.  step: of the call of `propose` that is under way.
    watched: whether metrics are shown.  first: whether this is the first tensor-parallel rank.  times_steps: whether
    the target's steps are being timed, without drafts.
    """

    step: Step
    model: Any
    num_speculative_tokens: int
    watched = first = times_steps = False
    reads_last = True

    @exits_with_message
    def __init__(self, vllm_config: Any, device: torch.device, runner: Any = None, *others: Any, **named: Any) -> None:
        check_ranks(vllm_config)
        super().__init__(vllm_config, device, runner, *others, **named)
        _, drafter = drafter_of(vllm_config)
        if drafter.autoregressive is not None and drafter.autoregressive.state_below is not None:
            self.reads_last = False
            runner.use_aux_hidden_state_outputs = True
        self.autoregressive = drafter.autoregressive is not None
        rank = get_tensor_model_parallel_rank()
        self.first, self.watched = rank == 0, metrics.watched(rank)
        self.clock = DraftClock.from_environment(device, rank, self.dp_rank, metered=self.watched)
        self.vocabularies: RequestVocabularies | None = None
        self.lengths: BatchLengths | None = None
        self.requests: list[str] = []  # of the coming step
        self.known: list[Any] = []  # what vLLM's runner knows of each of these
        self.own = self.num_speculative_tokens
        additional, overlaps = vllm_config.additional_config, vllm_config.scheduler_config.async_scheduling
        copies = v1_copies(additional, drafter, overlaps, device.type == "cpu")
        if copies or device.type == "cpu":  # where vLLM lets no steps overlap
            longest, folder = self.own, folder_of(vllm_config)
            budget = draft_budget(drafter, longest, copies)
            table = CopyTable.of(folder)
            self.lengths = BatchLengths(budget, longest, section(additional), table, copies, device)
            self.own = budget.tokens

    @exits_with_message
    def load_model(self, target_model: nn.Module, *others: Any, **named: Any) -> None:
        """Load the drafter; an autoregressive part shares embedding and head of the target."""
        if not self.reads_last:
            check_hands_over(target_model, self.vllm_config)
        self.final_norm = final_norm(target_model, self.hidden_states[:1])
        if self.autoregressive:
            super().load_model(target_model, *others, **named)
            self.model.gather_rows(static=False)
            self.vocabularies = RequestVocabularies.of(self.model.vocabularies, self.device, self.watched)
        else:
            self.model = self._get_model()
            self.supports_mm_inputs = False
            self._draft_attn_layer_names: set[str] = set()
        # To vLLM's loop, whose steps ranks that draft for nobody join in `dummy_run`, these are all drafts.
        self.num_speculative_tokens, self.parallel_drafts = self.model.split(self.own)
        self.parallel: Any = self.model.parallel if self.own else None
        self.draft_one: Any = None if self.parallel is None else self._compiled(self.parallel)
        if self.first:
            self.model.announce(self.vllm_config, self.copies, "V1 runner")
        if self.watched:
            metrics.count(self.vllm_config, self.clock, None if self.vocabularies is None else self.vocabularies.tally)

    def _compiled(self, parallel: Any) -> Any:
        """`ParallelPart.draft` for a batch of one: compiled on a CPU, unless ``--enforce-eager`` forbids it."""
        eager = self.vllm_config.compilation_config.mode == CompilationMode.NONE
        return parallel.draft if eager or self.device.type != "cpu" else drafting_for_one(parallel)

    def initialize_attn_backend(self, kv_cache_config: Any, *others: Any, **named: Any) -> None:
        """Without an autoregressive part nothing is initialised; metadata is of the target's first KV cache group."""
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
        """The largest draft of both parts, so that memory profiling sees it, and windows of one request, compiled.

        The parallel part has nothing to synchronise between data-parallel ranks.
        """
        if self.times_steps:
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
        """One draft of the parallel part, after nothing."""
        tokens = torch.zeros(batch, dtype=torch.int64, device=self.device)
        with torch.inference_mode(False):  # a tensor of the kind that the runner hands over, or it compiles again
            temperature = torch.ones(batch, device=self.device)
        autoregressive = self.model.split(self.own)[0]
        noise = draft_noise(tokens, self.own, {}) if mode != "greedy" else None
        known = [self.hidden_states[tokens]] * (autoregressive + 1), [tokens] * (autoregressive + 1)
        step = Step(*known, autoregressive, self.parallel_drafts, mode, temperature, noise, None)
        if self.copies:
            nothing = torch.zeros(batch, self.own, device=self.device)
            step.copying = Copying.begin(Copied(nothing.long(), nothing))._replace(done=autoregressive)
        self._draft_parallel(step)

    @torch.inference_mode()
    def time_steps(self, runner: Any) -> None:
        """Time the target's steps and the drafter, unless the user has given what they cost.

        runner: vLLM's, once it is warm.
        """
        if self.lengths is None or not self.lengths.is_timed or self.vllm_config.parallel_config.data_parallel_size > 1:
            return

        def step(tokens: int) -> None:
            states, _ = runner._dummy_run(tokens, force_attention=True)
            runner.model.compute_logits(states[:tokens])

        def draft(requests: int) -> None:
            if self.autoregressive:
                super(Proposer, self).dummy_run(requests)
                for _ in range(self.num_speculative_tokens):
                    self.model.greedy(self.hidden_states[:requests], None)
            if self.parallel is not None and self.parallel_drafts:
                self._dummy_parallel(requests, "greedy")

        requests = self.max_batch_size
        tokens = min(runner.max_num_tokens, requests * (1 + self.lengths.controller.longest))
        self.times_steps = True
        try:
            cost = measured(step, draft if self.own else None, tokens, requests, seconds_of_first_rank)
        finally:
            self.times_steps = False
        self.lengths.controller.cost = cost
        if self.first:
            self.model.announce_cost(cost)

    def prepare_next_token_ids_padded(
        self,
        sampled_token_ids: Tensor,
        requests: dict[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: Tensor,
        *others: Any,
        **named: Any,
    ) -> tuple[Tensor, Tensor]:
        """Called before `propose`, with what the target said: int [B, K + 1], -1 for a token that was rejected.

        requests: all that are not finished.  discard_request_mask: bool [at least B], whose prompt is not read yet.
        """
        ids = gpu_input_batch.req_ids[: len(sampled_token_ids)]
        unread = discard_request_mask[: len(ids)]
        if self.vocabularies is not None:
            self.vocabularies.hear(sampled_token_ids, requests, gpu_input_batch, discard_request_mask)
        if self.lengths is not None:
            with self.clock.resumed():
                self.lengths.sampled(ids, requests, sampled_token_ids, unread, gpu_input_batch.all_greedy)
                self.clock.lap("lengths")
        self.requests, self.known = ids, [requests[name] for name in ids]
        if self.device.type == "cpu":
            return next_tokens(sampled_token_ids, requests, gpu_input_batch, unread, gpu_input_batch.vocab_size)
        prepared: tuple[Tensor, Tensor] = super().prepare_next_token_ids_padded(
            sampled_token_ids, requests, gpu_input_batch, discard_request_mask, *others, **named
        )
        return prepared

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
        """Drafted tokens, int64 [B, K]; their distributions [B, K, V] are left for `take_last_draft_probs`.

        Where `lengths` chooses they are lists, as some drafts may be longer than others.

        target_hidden_states: [T, d] of all scheduled tokens; token_indices_to_sample: [B], the row of each
        request's last accepted token (None: its last scheduled one); next_token_ids: int32 [B], the token that
        the target sampled after it, or the prompt's next one while a prompt is still being read.
        """
        seeded = sampling_metadata.generators
        with self.clock:
            own = min(num_speculative_tokens, self.own)
            copied = None
            if self.lengths is not None and own:
                own = self.lengths.plan(num_speculative_tokens, bool(seeded))
                copied = self.lengths.copied(own) if own else None  # also of nothing: a seed draws as ever
                self.clock.lap("lengths")
            states = self.final_norm(target_hidden_states) if self.reads_last else target_hidden_states
            lengths = common_attn_metadata.seq_lens_cpu_upper_bound[: len(self.known)].tolist()
            next_token_ids = with_prompt_tokens(next_token_ids, self.known, lengths)
            rows, positions = last_accepted(target_positions, token_indices_to_sample, common_attn_metadata)
            copying = None if copied is None else Copying.begin(copied)
            self.step = step = self._begin(
                own, states[rows], next_token_ids.long(), positions, sampling_metadata, copying
            )
            if (
                self.autoregressive
            ):  # also where it drafts nothing: its keys and values of these tokens are for later steps
                super().propose(
                    num_speculative_tokens=step.autoregressive,
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
                if not step.autoregressive:
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
        own: int,
        states: Tensor,
        tokens: Tensor,
        positions: Tensor,
        sampling_metadata: Any,
        copying: Copying | None = None,
    ) -> Step:
        """What this step needs; how it drafts follows from facts that are known without asking the device."""
        autoregressive, parallel = self.model.split(own)
        mode: Mode = "sampled" if sampling_metadata.all_random else "mixed"
        noise = None
        if not self._enable_probabilistic_draft_probs or sampling_metadata.all_greedy:
            mode = "greedy"
        else:
            noise = draft_noise(positions, autoregressive + parallel, sampling_metadata.generators)
        numbers = self.vocabularies.choose(self.requests) if own and self.vocabularies is not None else None
        step = Step(
            [states], [tokens], autoregressive, parallel, mode, sampling_metadata.temperature, noise, numbers, copying
        )
        step.seeded = bool(sampling_metadata.generators)
        return step

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, None]:
        """Called by vLLM's loop for the next autoregressive draft, int64 [B], of states [B, d]; the step keeps all else."""
        tokens = self.step.draft_next(self.model, of_first_rank(hidden_states))
        self.clock.lap(f"draft step {len(self.step.tokens) - 1}")
        return tokens, None

    def _draft_parallel(self, step: Step) -> Draft:
        """The parallel part's drafts after all that is known by now."""
        draft = self.draft_one if len(step.tokens[0]) == 1 and not step.seeded else self.parallel.draft
        temperature = None if step.noise is None else step.temperature
        known = step.known()
        known = self.model.completed(known._replace(states=of_first_rank(known.states)), step.numbers)
        drafted: Draft = draft(known, temperature, step.parallel_noise(), step.parallel, step.mode, step.copying)
        return drafted
