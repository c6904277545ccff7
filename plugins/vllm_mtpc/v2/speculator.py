"""Drafting on Model Runner V2: the autoregressive part in vLLM's EAGLE loop, then the parallel part in one pass."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config.compilation import CUDAGraphMode
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.model_executor.model_loader import get_model
from vllm.model_executor.model_loader.utils import get_draft_load_config
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.draft import DraftContext
from mtpc.errors import exits_with_message
from mtpc.memory import FLOAT_BYTES, check_batch_memory
from mtpc.methods.drafter import split_drafts
from mtpc.metrics.draft_clock import DraftClock
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.table import CopyTable
from mtpc.to_device import copy_to_device
from vllm_mtpc import metrics
from vllm_mtpc.additional_config import v2_uses_prompt_lookup
from vllm_mtpc.dispatch import check_aux_hidden_states, drafter_of, folder_of
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.ranks import check_ranks, of_first_rank
from vllm_mtpc.request_parameters import has_grammar
from vllm_mtpc.sleep_mode import check_languages, keep_while_asleep
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.mixing import MixingSpeculator

FLOOR = torch.finfo(torch.float32).tiny  # stands for a probability of 0: its logarithm is finite


class Speculator(MixingSpeculator, EagleSpeculator):
    """Drafts with an autoregressive part, a parallel part, or both.

    Protocol: vLLM calls ``load_model``, `init_cudagraph_manager` and `capture` once, then `propose` in each decoding
    step.

    The state of a step is in buffers with fixed addresses, so that both parts can be captured in CUDA graphs, one per
    batch size.  vLLM captures the autoregressive part; this class captures the parallel part, prompt lookup and
    language detection.  Noise is a function of the request's seed and position, so all tensor-parallel ranks draft the
    same tokens from the first rank's states.  Data-parallel ranks exchange nothing for a parallel part.

    With a parallel part or prompt lookup, ``draft_logits`` is float32: distributions rounded to bfloat16 would not be
    those that tokens were drawn from.  Otherwise the autoregressive part draws from logits of the cache's dtype.

    Attributes:
        autoregressive: Whether there is an autoregressive part.
        drafts_nothing: Whether the autoregressive part only computes the state for the parallel part.
        autoregressive_drafts: Draft tokens of the autoregressive part.
        parallel_drafts: Draft tokens of the parallel part.
        slot_logits: Logits of the draft distributions by request slot, float32 [slots + 1, K, V].  Padded rows write to
            the last slot.  None if vLLM's cache is used or drafts are greedy.
        states: States that the parallel part is conditioned on, [B, s + 1, d]; see `DraftContext`.
        tokens: Tokens that the parallel part is conditioned on, int64 [B, s + 1].
        positions: Position of each request's last accepted token, int64 [B].
        grammars: Slots of requests with a grammar, whose draft tokens count as certain.
        reads_last_state: Whether the drafter reads the target's last hidden state, not one between two layers.
        counts_metrics: Whether this rank counts metrics.
        is_first_rank: Whether this is the first tensor-parallel rank.
    """

    counts_metrics = is_first_rank = False
    reads_last_state = True
    drafts_nothing = False

    @exits_with_message
    def __init__(self, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        check_ranks(vllm_config)
        settings = vllm_config.speculative_config
        (_, drafter), drafts = drafter_of(vllm_config), settings.num_speculative_tokens
        folder = folder_of(vllm_config)
        copies = v2_uses_prompt_lookup(vllm_config.additional_config, drafter.own_drafts, drafts, folder)
        self.autoregressive_drafts, self.parallel_drafts = split_drafts(drafter, drafts)
        # Prompt lookup alone is certain of its tokens: vLLM takes them so where no distributions are stored.
        probabilistic = settings.draft_sample_method == "probabilistic" and drafter.own_drafts > 0
        keeps_logits = bool(self.parallel_drafts) or copies
        plain = copy(vllm_config)
        if keeps_logits:  # vLLM must not allocate its cache of logits, which has no row for padding
            plain.speculative_config = copy(settings)
            plain.speculative_config.draft_sample_method = "greedy"
        super().__init__(plain, device)
        self.vllm_config, self.speculative_config, self.req_states = vllm_config, settings, req_states
        self.autoregressive = drafter.autoregressive is not None
        self.drafts_nothing = drafter.autoregressive is not None and not drafter.autoregressive.drafts
        self.reads_last_state = drafter.autoregressive is None or drafter.autoregressive.state_below is None
        rows = self.max_num_reqs
        rank = get_tensor_model_parallel_rank()
        self.is_first_rank, self.counts_metrics = rank == 0, metrics.enabled(rank)
        self.clock = DraftClock.from_environment(device, rank, self.dp_rank, metered=self.counts_metrics)
        self.parallel_graphs = BatchGraphs(self, "parallel_part", self._draft_parallel)
        self.grammars: set[int] = set()
        if copies:
            self._begin_copying(CopyTable.of(folder), req_states)
        self.slot_logits: Tensor | None = None
        if keeps_logits and probabilistic:
            kept = FLOAT_BYTES * (rows + 1) * drafts * self.vocab_size
            check_batch_memory(rows, drafts, self.vocab_size, kept, self.autoregressive_drafts > 0)
            self.slot_logits = torch.zeros(rows + 1, drafts, self.vocab_size, dtype=torch.float32, device=device)
            self.draft_logits = self.slot_logits[:rows]
        if self.parallel_drafts:
            known = self.autoregressive_drafts + 1
            self.states = torch.zeros(rows, known, self.hidden_size, dtype=self.dtype, device=device)
            self.tokens = torch.zeros(rows, known, dtype=torch.int64, device=device)
            self.positions = torch.zeros(rows, dtype=torch.int64, device=device)

    @exits_with_message
    def load_draft_model(
        self, target_model: nn.Module, target_attn_layer_names: set[str], *others: Any, **named: Any
    ) -> nn.Module:
        """Load the drafter, which shares the target's embedding and output head where it reads them.

        Args:
            target_model: vLLM's model of the target.
            target_attn_layer_names: Passed on to vLLM.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Returns:
            The drafter, `vllm_mtpc.model.DrafterForCausalLM`.

        Raises:
            MTPCError: The checkpoint is wrong, or the target cannot return the hidden state that the drafter reads.
        """
        if not self.reads_last_state:
            check_aux_hidden_states(target_model, self.vllm_config)
        states = torch.zeros(1, self.hidden_size, dtype=self.dtype, device=self.device)
        self.final_norm = final_norm(target_model, states)
        if self.autoregressive:
            model = super().load_draft_model(target_model, target_attn_layer_names, *others, **named)
        else:
            config = self.speculative_config.apply_draft_overrides(self.vllm_config)
            load = get_draft_load_config(config)
            model = get_model(vllm_config=config, model_config=self.draft_model_config, load_config=load)
        model.share_target(target_model)
        model.gather_rows(static=True)
        # A parallel part drafts from the union vocabulary, whatever the language.
        detects = model.vocabularies is not None and model.vocabularies.detector is not None
        if self.autoregressive and not self.drafts_nothing and detects:
            check_languages(self.vllm_config)
            self.languages = DeviceLanguages(model.vocabularies, self, self.req_states, self.counts_metrics)
        keep_while_asleep(model, model.draft_logits)
        if self.is_first_rank:
            kept = 0 if self.draft_logits is None else self.draft_logits.nbytes
            model.announce(self.vllm_config, self.copying is not None, "Model Runner V2", kept=kept)
        if self.counts_metrics:
            metrics.export(self.vllm_config, self.clock, None if self.languages is None else self.languages.tally)
        return model

    def _configure_decode_metadata_update(self, *given: Any, **named: Any) -> None:
        """Forbid vLLM's graph of the whole draft loop where a parallel part follows: it has a step per draft token."""
        super()._configure_decode_metadata_update(*given, **named)
        self.supports_decode_metadata_update &= not self.parallel_drafts

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode, *others: Any, **named: Any) -> None:
        """Create the managers of CUDA graphs; there are graphs only if the target's decoding steps run in graphs.

        Args:
            cudagraph_mode: The target's.
            others: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.
        """
        if self.autoregressive:
            super().init_cudagraph_manager(cudagraph_mode, *others, **named)
        self._prepare_graphs(cudagraph_mode)

    def capture(self, *given: Any, **named: Any) -> None:
        """Capture both parts for every batch size.

        Args:
            given: Arguments of vLLM's, passed on.
            named: Arguments of vLLM's, passed on.
        """
        if self.autoregressive:
            super().capture(*given, **named)
        self._capture_graphs()

    def _graphs(self) -> list[BatchGraphs]:
        return super()._graphs() + [self.parallel_graphs] * bool(self.parallel_drafts)

    def begin_request(self, slot: int, request: Any) -> None:
        """Read the sampling parameters of a new request, or of a preempted one that returns.

        Args:
            slot: Its slot.
            request: vLLM's ``NewRequestData``.
        """
        super().begin_request(slot, request)
        self.grammars.discard(slot)
        if has_grammar(request):
            self.grammars.add(slot)

    @torch.inference_mode()
    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Tensor,
        aux_hidden_states: list[Tensor] | None,
        num_sampled: Tensor,
        num_rejected: Tensor,
        last_sampled: Tensor,
        next_prefill_tokens: Tensor,
        temperature: Tensor,
        seeds: Tensor,
        *,
        dummy_run: bool = False,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
        **named: Any,
    ) -> Tensor:
        """Draft.  The logits before temperature are left in ``draft_logits``, [slots, K, V].

        Args:
            input_batch: vLLM's ``InputBatch``.
            attn_metadata: Passed on to vLLM's loop.
            slot_mappings: Passed on to vLLM's loop.
            last_hidden_states: [T, d], states of all scheduled tokens.
            aux_hidden_states: States between two layers of the target, [T, d]; None if the drafter reads the last ones.
            num_sampled: int32 [B], tokens that each request emitted in this step.
            num_rejected: int32 [B], draft tokens of each request that were rejected.
            last_sampled: [slots, 1], each request's last emitted token.
            next_prefill_tokens: [lookahead, slots], the prompt's next tokens during prefill.
            temperature: [slots].
            seeds: [slots].
            dummy_run: Whether the step has no requests.
            is_profile: Whether vLLM profiles memory, before there are graphs.
            num_speculative_tokens: K of this step; None for ``num_speculative_steps``, the maximum.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Draft tokens, int64 [B, K].
        """
        certain, drafted_at = None if dummy_run else self._rows_with_grammar(input_batch), temperature
        if certain is not None:
            drafted_at = temperature.index_fill(0, input_batch.idx_mapping[certain].long(), 0.0)
        drafts = self.num_speculative_steps if num_speculative_tokens is None else num_speculative_tokens
        autoregressive, rows = min(self.autoregressive_drafts, drafts), input_batch.num_reqs
        with self.clock:
            # The target returns auxiliary states of one layer, if the drafter reads them.
            states = aux_hidden_states[0] if aux_hidden_states else self.final_norm(last_hidden_states)
            if self.copying is not None or self.languages is not None or not self.autoregressive:
                self._copy_request_inputs(rows, input_batch.idx_mapping, drafted_at, seeds, dummy_run=dummy_run)
            self._begin_step(rows, num_sampled, num_rejected, dummy_run=dummy_run, is_profile=is_profile)
            if drafts > autoregressive:
                self._begin_parallel(input_batch, states, num_sampled, num_rejected, last_sampled, next_prefill_tokens)
            # Layers that draft nothing make a pass as well; with 0 tokens vLLM would not call `sample_draft` after it.
            passes = int(drafts > 0) if self.drafts_nothing else autoregressive
            if self.autoregressive:  # even without draft tokens: it must write keys and values for later steps
                super().propose(
                    input_batch, attn_metadata, slot_mappings, states, None, num_sampled, num_rejected,
                    last_sampled, next_prefill_tokens, drafted_at, seeds, dummy_run=dummy_run, is_profile=is_profile,
                    num_speculative_tokens=passes, **named,
                )  # fmt: skip
                self.clock.lap("draft steps")  # all steps: they may be one graph
            if drafts > autoregressive:
                self.parallel_graphs.run(rows, eager=is_profile)
                self.clock.lap("parallel")
            if certain is not None:
                self._state_certain(certain, temperature)
        return self.draft_tokens[:rows]

    def _begin_parallel(
        self,
        input_batch: Any,
        states: Tensor,
        num_sampled: Tensor,
        num_rejected: Tensor,
        last_sampled: Tensor,
        next_prefill_tokens: Tensor,
    ) -> None:
        """Store the target's state and token, the first that the parallel part is conditioned on."""
        rows = input_batch.num_reqs
        slots = input_batch.idx_mapping[:rows]
        last = (
            input_batch.query_start_loc[1 : rows + 1] - 1 - num_rejected[:rows]
        )  # index of the last accepted token, [B]
        self.states[:rows, 0] = of_first_rank(states[last])
        self.positions[:rows] = input_batch.positions[last]
        # During prefill nothing has been sampled: the next token is the prompt's.
        self.tokens[:rows, 0] = torch.where(
            num_sampled[:rows] > 0, last_sampled[slots, 0].long(), next_prefill_tokens[0, slots].long()
        )

    def _rows_with_grammar(self, input_batch: Any) -> Tensor | None:
        """Return the indices of requests with a grammar, int64; None: there are none, or all drafts are certain."""
        if not self.grammars or self.draft_logits is None:
            return None
        rows = [row for row, slot in enumerate(input_batch.idx_mapping_np.tolist()) if slot in self.grammars]
        return copy_to_device(torch.tensor(rows), self.device) if rows else None

    def _state_certain(self, rows: Tensor, temperature: Tensor) -> None:
        """State that the drafts of these requests are certain; vLLM verifies them at their own temperatures [slots]."""
        assert self.draft_logits is not None
        slots = self.idx_mapping[rows].long()
        scale = torch.where(temperature[slots] > 0, temperature[slots], 1.0)  # see `_draft_rows`
        logits = (scale * math.log(FLOOR)).to(self.draft_logits.dtype)[:, None, None]
        logits = logits.repeat(1, *self.draft_logits.shape[1:])
        self.draft_logits[slots] = logits.scatter_(2, self.draft_tokens[rows].clamp_min(0)[..., None], 0.0)

    def compute_draft_logits(self, hidden_states: Tensor, spec_step_idx: int) -> Tensor:
        """Compute the autoregressive part's logits, mixed with prompt lookup; vLLM's loop calls it.

        Args:
            hidden_states: [B, d].
            spec_step_idx: Ignored: in a CUDA graph only ``current_draft_step`` has the step's number.

        Returns:
            Logits [B, V].
        """
        rows = len(hidden_states)
        numbers = None if self.languages is None else self.languages.numbers(rows)
        logits: Tensor = self.model.compute_logits(hidden_states, numbers)
        return self._mixed(logits)

    def sample_draft(self, hidden_states: Tensor, *arguments: Any, **named: Any) -> Tensor:
        """Draft the autoregressive part's next token and keep it and its state; vLLM's loop calls it.

        Args:
            hidden_states: [B, d].
            arguments: Further arguments of vLLM's, passed on.
            named: Further arguments of vLLM's, passed on.

        Returns:
            Tokens, int64 [B].
        """
        hidden_states = of_first_rank(hidden_states)
        if self.drafts_nothing:  # its state takes the place of the target's, and vLLM discards the token
            rows = len(hidden_states)
            if self.parallel_drafts:
                self.states[:rows, 0] = hidden_states.to(self.dtype)
            return self.draft_tokens[:rows, 0].clone()
        tokens = super().sample_draft(hidden_states, *arguments, **named)
        if self.parallel_drafts:
            rows, index = len(hidden_states), self.current_draft_step[None] + 1
            self.states[:rows].index_copy_(1, index, hidden_states[:, None].to(self.dtype))
            self.tokens[:rows].index_copy_(1, index, tokens[:, None])
        return tokens

    def _draft_parallel(self, rows: int) -> None:
        """Run the parallel part, from buffers to ``draft_tokens`` and `slot_logits`."""
        known = self.model.with_head_inputs(DraftContext(self.states[:rows], self.tokens[:rows]))
        for part in self.model.parallel.parts(rows, self.parallel_drafts):
            self._draft_rows(known.of_rows(part), part)

    def _draft_rows(self, known: DraftContext, rows: slice) -> None:
        """Run the parallel part for some requests of the batch."""
        autoregressive, parallel, drafts = self.autoregressive_drafts, self.model.parallel, self.parallel_drafts
        copying = None if self.copying is None else self.copying.after(autoregressive, rows)
        if self.slot_logits is None:
            self.draft_tokens[rows, autoregressive:] = parallel.draft(
                known, None, None, drafts, "greedy", copying
            ).tokens
            return
        slots = self.idx_mapping[rows]  # [B], -1 for padded rows
        temperature = self.temperature[slots]
        noise = counter_uniforms(self.seeds[slots], self.positions[rows], drafts)
        draft = parallel.draft(known, temperature, noise, drafts, "mixed", copying)
        self.draft_tokens[rows, autoregressive:] = draft.tokens
        # vLLM divides by the temperature T when it verifies, so T log q yields exactly q.
        scale = torch.where(temperature > 0, temperature, 1.0)
        logits = draft.probs.clamp_min_(FLOOR).log_().mul_(scale[:, None, None])
        self.slot_logits[:, autoregressive:].index_copy_(0, torch.where(slots < 0, self.max_num_reqs, slots), logits)
