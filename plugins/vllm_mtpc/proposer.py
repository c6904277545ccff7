"""Drafting on vLLM's V1 model runner: the serial part in vLLM's own EAGLE loop, then the window part in one shot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import CompilationMode
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft import Draft, Mode
from mtpc.draft_length.passes import Enough
from mtpc.errors import tells
from mtpc.methods.drafter import own_drafts
from mtpc.metrics.draft_clock import DraftClock
from mtpc.parallel.compiled import drafting_for_one
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import metrics
from vllm_mtpc.additional import host_copying
from vllm_mtpc.backlog import LONGEST, MEMORY, Backlog, Pass
from vllm_mtpc.copying import RunnerCopying
from vllm_mtpc.dispatch import drafter_of
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.last_accepted import last_accepted, next_tokens
from vllm_mtpc.noise import draft_noise
from vllm_mtpc.prompt_parts import with_prompt_tokens
from vllm_mtpc.ranks import check_ranks, of_first_rank
from vllm_mtpc.request_vocabularies import RequestVocabularies
from vllm_mtpc.step import Step


class Proposer(EagleProposer):
    """Drafts with both parts of a drafter, each of which may be missing; see `propose`.

    serial: whether there is a serial part.  Without one, no loop of vLLM's runs and there is no attention layer.
    window: the window part, if any draft is left to it.  own: drafts of both parts; what goes beyond them is copied.
    step: of the call of `propose` that is under way.  watched: whether metrics are shown.  first: whether
    this is the first tensor-parallel rank.  reads_other_states: whether the target hands drafters others than its last.
    looked: whether what the target has said in this step is known, see `at_once`.  may_end: whether the serial part may
    be asked after each pass whether it goes on, and goes_on: who says so in this step, None if nobody is asked.
    """

    step: Step
    model: Any
    num_speculative_tokens: int
    watched = first = reads_other_states = looked = may_end = False
    goes_on: Callable[[Tensor, Tensor], bool] | None = None

    @tells
    def __init__(self, vllm_config: Any, device: torch.device, *others: Any, **named: Any) -> None:
        check_ranks(vllm_config)
        super().__init__(vllm_config, device, *others, **named)
        family, drafter = drafter_of(vllm_config)
        self.serial = drafter.serial is not None
        rank = get_tensor_model_parallel_rank()
        self.first, self.watched = rank == 0, metrics.watched(rank)
        self.clock = DraftClock.from_environment(device, rank, self.dp_rank, metered=self.watched)
        self.vocabularies: RequestVocabularies | None = None
        self.copying: RunnerCopying | None = None
        self.requests: list[str] = []  # of the coming step
        self.known: list[Any] = []  # what vLLM's runner knows of each of these
        self.backlog: Backlog | None = None
        self.own = self.num_speculative_tokens
        overlaps = vllm_config.scheduler_config.async_scheduling
        settings = host_copying(vllm_config.additional_config, family, overlaps)
        if settings is not None:
            own = own_drafts(family, drafter, self.num_speculative_tokens)
            table = CopyTable.of(Path(vllm_config.speculative_config.draft_model_config.model))
            self.own, longest = own.count, self.num_speculative_tokens
            self.copying = RunnerCopying(own, longest, settings, table, device)
            # A GPU would have to be waited for after each pass, and ranks that draft for nobody join a known number.
            self.may_end = own.by_pass and device.type == "cpu" and vllm_config.parallel_config.data_parallel_size == 1

    @tells
    def load_model(self, target_model: nn.Module, *others: Any, **named: Any) -> None:
        """Load the drafter; a serial part shares embedding and head of the target."""
        self.final_norm = final_norm(target_model, self.hidden_states[:1])
        self.reads_other_states = hasattr(target_model, "get_mtp_target_hidden_states")
        if self.serial:
            super().load_model(target_model, *others, **named)
            self.model.gather_rows(static=False)
            self.vocabularies = RequestVocabularies.of(self.model.vocabularies, self.device, self.watched)
        else:
            self.model = self._get_model()
            self.supports_mm_inputs = False
            self._draft_attn_layer_names: set[str] = set()
        # To vLLM's loop, whose steps ranks that draft for nobody join in `dummy_run`, these are all drafts.
        self.num_speculative_tokens, self.window_drafts = self.model.split(self.own)
        self.window: Any = self.model.window if self.own else None
        self.draft_one: Any = None if self.window is None else self._compiled(self.window)
        if self.first:
            self.model.announce(self.vllm_config, self.copying is not None, "V1 runner", self.may_end)
        if self.watched:
            metrics.count(self.vllm_config, self.clock, None if self.vocabularies is None else self.vocabularies.tally)

    def _compiled(self, window: Any) -> Any:
        """`WindowPart.draft` for a batch of one: compiled on a CPU, unless ``--enforce-eager`` forbids it."""
        eager = self.vllm_config.compilation_config.mode == CompilationMode.NONE
        return window.draft if eager or self.device.type != "cpu" else drafting_for_one(window)

    def initialize_attn_backend(self, kv_cache_config: Any, *others: Any, **named: Any) -> None:
        """Without a serial part nothing is initialised; metadata is of the target's first KV cache group."""
        if self.serial:
            super().initialize_attn_backend(kv_cache_config, *others, **named)
        else:
            self.draft_attn_groups: list[Any] = []
            self.kv_cache_gid = 0
            self.block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
        if self.serial and self._may_wait():
            prefixes = self.vllm_config.cache_config.enable_prefix_caching
            room = max(self.max_num_tokens, MEMORY // self.hidden_states[0].nbytes)
            # What hands keys and values on to others listens to the layers' own attention.
            apart = self.model.model.remembers and self.vllm_config.kv_transfer_config is None
            longest = LONGEST if prefixes else room
            self.backlog = Backlog(self.max_num_tokens, self.block_size, longest, room, apart)

    def _may_wait(self) -> bool:
        """Whether the layer may leave out steps: not where others count on it, or where an image says what it reads."""
        others, target = self.vllm_config.parallel_config, self.vllm_config.model_config
        alone = others.data_parallel_size == others.decode_context_parallel_size == 1
        images = self.supports_mm_inputs or self.uses_mrope or target.uses_mrope
        return self.copying is not None and alone and not images

    @torch.inference_mode()
    def dummy_run(self, num_tokens: int, *others: Any, **named: Any) -> None:
        """The largest draft of both parts, so that memory profiling sees it, and windows of one request, compiled.

        The window part has nothing to synchronise between data-parallel ranks.
        """
        if self.serial:
            super().dummy_run(num_tokens, *others, **named)
        if self.window is None:
            return
        rows = min(num_tokens, self.max_batch_size)
        drafts: list[tuple[int, Mode]] = [(rows, "mixed")] if rows > 1 else []
        for batch, mode in [*drafts, (1, "greedy"), (1, "sampled")]:
            tokens = torch.zeros(batch, dtype=torch.int64, device=self.device)
            with torch.inference_mode(False):  # a tensor of the kind that the runner hands over, or it compiles again
                temperature = torch.ones(batch, device=self.device)
            serial = self.num_speculative_tokens
            noise = draft_noise(tokens, serial + self.window_drafts, {}) if mode != "greedy" else None
            known = [self.hidden_states[tokens]] * (serial + 1), [tokens] * (serial + 1)
            step = Step(*known, serial, self.window_drafts, mode, temperature, noise, None)
            if self.copying is not None:
                nothing = torch.zeros(batch, serial + self.window_drafts, device=self.device)
                step.copying = Copying.begin(Copied(nothing.long(), nothing))._replace(done=serial)
            self._draft_window(step)

    @torch.inference_mode()
    def at_once(self, runner: Any, most: int, tokens: Tensor, states: Tensor) -> list[list[int]] | None:
        """Drafts of at most so many tokens, of a step for which vLLM has prepared nothing; None: it has to.

        That is where the drafter is to draft itself.  It is a step in which each request has read one token and the
        target has said one: tokens, int [B, 1], after states [B, d].  runner: vLLM's, with the requests of the step.
        """
        batch, count = runner.input_batch, len(tokens)
        ids, unread = batch.req_ids[:count], runner.discard_request_mask.gpu
        if self.copying is None or batch.generators or self.reads_other_states or (self.serial and not self.backlog):
            return None
        if self.backlog is not None and not self.backlog.has_room(ids):
            return None
        said = tokens.clone()
        if self.copying.rests_on(ids, runner.requests, said):
            with self.clock:
                if self.vocabularies is not None:
                    self.vocabularies.hear_later(ids, said)
                self._wait(ids, runner, states, said)
            return [[] for _ in ids]
        with self.clock.resumed():
            self.copying.sampled(ids, runner.requests, tokens, unread[:count], batch.all_greedy, False)
            self.looked = bool(self.own and self.copying.own_that_pay(most, False))
            self.clock.lap("copying")
        if self.looked:
            return None
        with self.clock:
            drafts, _ = self.copying.lengths(Draft(tokens[:, :0], None), most, {})
            self.clock.lap("copying")
            if self.vocabularies is not None:
                self.vocabularies.hear(tokens, runner.requests, batch)
            self._wait(ids, runner, states, said)
        return drafts

    def _wait(self, ids: list[str], runner: Any, states: Tensor, said: Tensor) -> None:
        """The serial part's layer reads one more token of each request when it drafts again."""
        if self.backlog is not None:
            self.backlog.wait(ids, runner.positions[: len(ids)], self.final_norm(states), said[:, 0])

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
        if self.copying is not None and not self.looked:
            how = gpu_input_batch.all_greedy, bool(gpu_input_batch.generators)
            with self.clock.resumed():
                self.copying.sampled(ids, requests, sampled_token_ids, unread, *how)
                self.clock.lap("copying")
        self.looked, self.requests, self.known = False, ids, [requests[name] for name in ids]
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

        With copying they are lists, as some drafts may be longer than others.

        target_hidden_states: [T, d] of all scheduled tokens; token_indices_to_sample: [B], the row of each
        request's last accepted token (None: its last scheduled one); next_token_ids: int32 [B], the token that
        the target sampled after it, or the prompt's next one while a prompt is still being read.
        """
        seeded = sampling_metadata.generators
        with self.clock:
            own, copying = self._own_that_pay(num_speculative_tokens, bool(seeded))
            states = self.final_norm(target_hidden_states)
            lengths = common_attn_metadata.seq_lens_cpu_upper_bound[: len(self.known)].tolist()
            next_token_ids = with_prompt_tokens(next_token_ids, self.known, lengths)
            rows, positions = last_accepted(target_positions, token_indices_to_sample, common_attn_metadata)
            self.step = step = self._begin(
                own, states[rows], next_token_ids.long(), positions, sampling_metadata, copying
            )
            if self.serial:
                known = target_token_ids, target_positions, states, next_token_ids
                read = Pass(*known, token_indices_to_sample, common_attn_metadata, num_rejected_tokens_gpu)
                self._draft_serially(read, step.serial, sampling_metadata=sampling_metadata, **named)
            draft = step.drafts(self._draft_window(step) if step.window else None)
            if step.window:
                self.clock.lap("window")
            if self.copying is None:
                self._last_draft_probs = draft.probs
                return draft.tokens
            tokens, self._last_draft_probs = self.copying.lengths(draft, num_speculative_tokens, seeded)
            self.clock.lap("copying")
        return tokens

    def _draft_serially(self, read: Pass, drafts: int, **named: Any) -> None:
        """The serial part reads what the target has read, also where it drafts nothing, and drafts into the step."""
        passes = [read] if self.backlog is None else self.backlog.passes(self.requests, read, drafts > 0)
        for number, one in enumerate(passes, start=1):
            own = drafts if number == len(passes) else 0
            if own or self.backlog is None or not self.backlog.apart:
                with suppress(Enough):
                    super().propose(num_speculative_tokens=own, **one._asdict(), **named)
            else:
                slots = one.common_attn_metadata.slot_mapping[: len(one.target_positions)]
                following = one.following(one.lasts()[0])
                self.model.model.remember(following, one.target_positions, one.target_hidden_states, slots)

    def _own_that_pay(self, longest: int, seeded: bool) -> tuple[int, Copying | None]:
        """How many tokens the drafter is to draft itself, and what may be copied instead of them."""
        own = min(longest, self.own)
        if self.copying is None or not own:
            return own, None
        own = self.copying.own_that_pay(longest, seeded)
        asked = self.may_end and own > 0 and not seeded
        self.goes_on = self.copying.goes_on if asked else None
        if asked:
            own = self.copying.batch.own.up_to(own, longest)
        copying = Copying.begin(self.copying.copied(own)) if own else None  # also of nothing: a seed draws as ever
        self.clock.lap("copying")
        return own, copying

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
        serial, window = self.model.split(own)
        mode: Mode = "sampled" if sampling_metadata.all_random else "mixed"
        noise = None
        if not self._enable_probabilistic_draft_probs or sampling_metadata.all_greedy:
            mode = "greedy"
        else:
            noise = draft_noise(positions, serial + window, sampling_metadata.generators)
        numbers = self.vocabularies.choose(self.requests) if own and self.vocabularies is not None else None
        step = Step([states], [tokens], serial, window, mode, sampling_metadata.temperature, noise, numbers, copying)
        step.seeded = bool(sampling_metadata.generators)
        return step

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, None]:
        """Called by vLLM's loop for the next serial draft, int64 [B], of states [B, d]; the step keeps all else."""
        tokens = self.step.draft_next(self.model, of_first_rank(hidden_states))
        self.clock.lap(f"serial {len(self.step.tokens) - 1}")
        if self.goes_on is None:
            return tokens, None
        goes_on = self.goes_on(tokens, self.step.peaks[-1])
        self.clock.lap("copying")
        if not goes_on:
            raise Enough
        return tokens, None

    def _draft_window(self, step: Step) -> Draft:
        """The window part's drafts after all that is known by now."""
        draft = self.draft_one if len(step.tokens[0]) == 1 and not step.seeded else self.window.draft
        temperature = None if step.noise is None else step.temperature
        known = step.known()
        known = self.model.completed(known._replace(states=of_first_rank(known.states)), step.numbers)
        drafted: Draft = draft(known, temperature, step.window_noise(), step.window, step.mode, step.copying)
        return drafted
