"""Drafting on vLLM's Model Runner V2: the autoregressive part in vLLM's own EAGLE loop, then the parallel part in one shot."""

from __future__ import annotations

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
from mtpc.methods.drafter import split_drafts
from mtpc.metrics.draft_clock import DraftClock
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import metrics
from vllm_mtpc.additional import v2_copies
from vllm_mtpc.dispatch import check_hands_over, drafter_of, folder_of
from vllm_mtpc.final_norm import final_norm
from vllm_mtpc.ranks import check_ranks, of_first_rank
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.new_requests import follow
from vllm_mtpc.v2.prompt_lookup import DeviceCopying, texts_on_device

FLOOR = torch.finfo(torch.float32).tiny  # stands for a probability of 0: its logarithm is finite


class Speculator(EagleSpeculator):
    """Drafts with both parts of a drafter, each of which may be missing; see `propose`.

    What one step needs lies in buffers that never move, so that both parts can be captured in CUDA graphs, one for each
    batch size: vLLM captures the autoregressive part, this class the parallel part and what may be copied instead.  Noise is a
    function of the request's seed and position, so every tensor-parallel rank drafts the same from the states of the
    first one; data-parallel ranks exchange nothing for a window, and need not agree on a shape.

    With a parallel part or copying ``draft_logits`` is of float32: a window's distributions rounded to bfloat16 are not
    the ones that were drawn from.  The autoregressive part draws from logits of the cache's type, which keeps them as they are.

    watched: whether metrics are shown.  first: whether this is the first tensor-parallel rank.  reads_last: whether the
    drafter reads the target's last states; otherwise vLLM hands over those between its layers.
    """

    watched = first = False
    reads_last = True

    @exits_with_message
    def __init__(self, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        check_ranks(vllm_config)
        settings = vllm_config.speculative_config
        (_, drafter), drafts = drafter_of(vllm_config), settings.num_speculative_tokens
        folder = folder_of(vllm_config)
        copies = v2_copies(vllm_config.additional_config, drafter, drafts, folder)
        self.autoregressive_drafts, self.parallel_drafts = split_drafts(drafter, drafts)
        probabilistic = settings.draft_sample_method == "probabilistic"
        own_logits = bool(self.parallel_drafts) or copies
        plain = copy(vllm_config)
        if own_logits:  # vLLM's own cache of logits has no room for padded rows: it is not to be made
            plain.speculative_config = copy(settings)
            plain.speculative_config.draft_sample_method = "greedy"
        super().__init__(plain, device)
        self.vllm_config, self.speculative_config, self.req_states = vllm_config, settings, req_states
        self.autoregressive = drafter.autoregressive is not None
        self.reads_last = drafter.autoregressive is None or drafter.autoregressive.state_below is None
        rows = self.max_num_reqs
        rank = get_tensor_model_parallel_rank()
        self.first, self.watched = rank == 0, metrics.watched(rank)
        self.clock = DraftClock.from_environment(device, rank, self.dp_rank, metered=self.watched)
        self.copy_graphs = BatchGraphs(self, "copies", self._find_copies)
        self.parallel_graphs = BatchGraphs(self, "windows", self._draft_parallel)
        self.languages: DeviceLanguages | None = None
        self.copying: DeviceCopying | None = None
        if copies:
            texts, lengths = texts_on_device(req_states, device), req_states.total_len.gpu
            self.copying = copying = DeviceCopying(CopyTable.of(folder), texts, lengths, rows, drafts)
            follow(req_states, lambda slot, _: copying.slots.begin(slot))
        self.slot_logits: Tensor | None = None  # [slots + 1, K, V]; padded rows write to the last one
        if own_logits and probabilistic:
            self.slot_logits = torch.zeros(rows + 1, drafts, self.vocab_size, dtype=torch.float32, device=device)
            self.draft_logits = self.slot_logits[:rows]
        if self.parallel_drafts:
            places = self.autoregressive_drafts + 1  # what the window is conditioned on, see `DraftContext`
            self.states = torch.zeros(rows, places, self.hidden_size, dtype=self.dtype, device=device)
            self.tokens = torch.zeros(rows, places, dtype=torch.int64, device=device)
            self.positions = torch.zeros(rows, dtype=torch.int64, device=device)

    @exits_with_message
    def load_draft_model(
        self, target_model: nn.Module, target_attn_layer_names: set[str], *others: Any, **named: Any
    ) -> nn.Module:
        """Load the drafter; an autoregressive part shares embedding and head of the target."""
        if not self.reads_last:
            check_hands_over(target_model, self.vllm_config)
        states = torch.zeros(1, self.hidden_size, dtype=self.dtype, device=self.device)
        self.final_norm = final_norm(target_model, states)
        if self.autoregressive:
            model = super().load_draft_model(target_model, target_attn_layer_names, *others, **named)
            model.gather_rows(static=True)
            if model.vocabularies is not None and model.vocabularies.detector is not None:
                self.languages = DeviceLanguages(model.vocabularies, self, self.req_states, self.watched)
        else:
            config = self.speculative_config.apply_draft_overrides(self.vllm_config)
            load = get_draft_load_config(config)
            model = get_model(vllm_config=config, model_config=self.draft_model_config, load_config=load)
        if self.first:
            kept = 0 if self.draft_logits is None else self.draft_logits.nbytes
            model.announce(self.vllm_config, self.copying is not None, "Model Runner V2", kept=kept)
        if self.watched:
            metrics.count(self.vllm_config, self.clock, None if self.languages is None else self.languages.tally)
        return model

    def _configure_decode_metadata_update(self, *given: Any, **named: Any) -> None:
        """A graph of vLLM's whole draft loop has as many steps as there are drafts: too many where a window follows."""
        super()._configure_decode_metadata_update(*given, **named)
        self.supports_decode_metadata_update &= not self.parallel_drafts

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode, *others: Any, **named: Any) -> None:
        """One graph of each part for each batch size, if the target's decoding steps run in graphs."""
        if self.autoregressive:
            super().init_cudagraph_manager(cudagraph_mode, *others, **named)
        self._prepare_graphs(cudagraph_mode)

    def capture(self, *given: Any, **named: Any) -> None:
        """Capture both parts for every batch size."""
        if self.autoregressive:
            super().capture(*given, **named)
        self._capture_graphs()

    def _graphs(self) -> list[BatchGraphs]:
        """Those that are not vLLM's."""
        used = [] if self.languages is None else [self.languages.graphs]
        used += [] if self.copying is None else [self.copy_graphs]
        return used + [self.parallel_graphs] * bool(self.parallel_drafts)

    def _prepare_graphs(self, cudagraph_mode: CUDAGraphMode) -> None:
        for graphs in self._graphs():
            graphs.prepare(cudagraph_mode)

    def _capture_graphs(self) -> None:
        self.idx_mapping.fill_(-1)
        for graphs in self._graphs():
            graphs.capture()

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
        """Drafted tokens, int64 [B, K]; their logits before the temperature wait in `draft_logits` [slots, K, V].

        last_hidden_states: [T, d] of all scheduled tokens.  num_sampled, num_rejected: int32 [B] of this step.
        last_sampled [slots, 1], next_prefill_tokens [lookahead, slots], temperature and seeds [slots]: by slot.
        num_speculative_tokens: K of this step, of the `num_speculative_steps` that there is room for.
        """
        drafts = self.num_speculative_steps if num_speculative_tokens is None else num_speculative_tokens
        autoregressive, rows = min(self.autoregressive_drafts, drafts), input_batch.num_reqs
        with self.clock:
            # Of the states between its layers the target hands over those of one, which are read instead of the last.
            states = aux_hidden_states[0] if aux_hidden_states else self.final_norm(last_hidden_states)
            if self.copying is not None or self.languages is not None or not self.autoregressive:
                self._copy_request_inputs(rows, input_batch.idx_mapping, temperature, seeds, dummy_run=dummy_run)
            if self.languages is not None:
                self.languages.read(rows, num_sampled, None if dummy_run else num_rejected, eager=is_profile)
            if self.copying is not None:
                self.copying.said[:rows] = num_sampled[:rows]
                self.copy_graphs.run(rows, eager=is_profile)
            if drafts > autoregressive:
                self._begin_parallel(input_batch, states, num_sampled, num_rejected, last_sampled, next_prefill_tokens)
            if (
                self.autoregressive
            ):  # also where it drafts nothing: its keys and values of these tokens are for later steps
                super().propose(
                    input_batch, attn_metadata, slot_mappings, states, None, num_sampled, num_rejected,
                    last_sampled, next_prefill_tokens, temperature, seeds, dummy_run=dummy_run, is_profile=is_profile,
                    num_speculative_tokens=autoregressive, **named,
                )  # fmt: skip
                self.clock.lap("draft steps")  # all steps: they may be one graph
            if drafts > autoregressive:
                self.parallel_graphs.run(rows, eager=is_profile)
                self.clock.lap("parallel")
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
        """The target's own state and token, the first that the window is conditioned on."""
        rows = input_batch.num_reqs
        slots = input_batch.idx_mapping[:rows]
        last = input_batch.query_start_loc[1 : rows + 1] - 1 - num_rejected[:rows]  # last accepted token, [B]
        self.states[:rows, 0] = of_first_rank(states[last])
        self.positions[:rows] = input_batch.positions[last]
        # While a prompt is being read nothing has been sampled: the next token is the prompt's.
        self.tokens[:rows, 0] = torch.where(
            num_sampled[:rows] > 0, last_sampled[slots, 0].long(), next_prefill_tokens[0, slots].long()
        )

    def compute_draft_logits(self, hidden_states: Tensor, spec_step_idx: int) -> Tensor:
        """Called by vLLM's loop: logits of the autoregressive part, [B, V].

        With copying they are those of the mixture at the requests' temperatures.
        """
        rows = len(hidden_states)
        numbers = None if self.languages is None else self.languages.numbers(rows)
        logits: Tensor = self.model.compute_logits(hidden_states, numbers)
        if self.copying is not None:
            temperature = None if self.draft_logits is None else self.temperature[self.idx_mapping[:rows]]
            return self.copying.mixed(logits, self.current_draft_step, temperature)
        return logits if self.draft_logits is None else logits.to(self.draft_logits.dtype)

    def sample_draft(self, hidden_states: Tensor, *arguments: Any, **named: Any) -> Tensor:
        """Called by vLLM's loop for the next autoregressive draft, int64 [B], of states [B, d]; the window reads both later.

        Where they are kept follows from the step's number on the device: in a graph no number of Python's counts.
        """
        hidden_states = of_first_rank(hidden_states)
        tokens: Tensor = super().sample_draft(hidden_states, *arguments, **named)
        if self.copying is not None:
            self.copying.drafted(tokens, self.current_draft_step)
        if self.parallel_drafts:
            rows, place = len(hidden_states), self.current_draft_step[None] + 1
            self.states[:rows].index_copy_(1, place, hidden_states[:, None].to(self.dtype))
            self.tokens[:rows].index_copy_(1, place, tokens[:, None])
        return tokens

    def _find_copies(self, rows: int) -> None:
        """From buffers to buffers: what may be copied."""
        assert self.copying is not None
        self.copying.propose(self.idx_mapping[:rows])

    def _draft_parallel(self, rows: int) -> None:
        """From buffers to buffers: the window's `draft_tokens` [:rows] and, by request slot, `slot_logits`."""
        known = self.model.completed(DraftContext(self.states[:rows], self.tokens[:rows]))
        for part in self.model.parallel.parts(rows, self.parallel_drafts):
            self._draft_rows(known.of_rows(part), part)

    def _draft_rows(self, known: DraftContext, rows: slice) -> None:
        """`_draft_parallel` of some rows of a batch."""
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
        # vLLM divides by the temperature when it reads: T log q comes back as exactly q.
        scale = torch.where(temperature > 0, temperature, 1.0)
        logits = draft.probs.clamp_min_(FLOOR).log_().mul_(scale[:, None, None])
        self.slot_logits[:, autoregressive:].index_copy_(0, torch.where(slots < 0, self.max_num_reqs, slots), logits)
