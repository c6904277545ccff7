"""SGLang's EAGLE worker for drafters with an autoregressive part, followed by a parallel part if there is one.

SGLang drafts the first token at the end of the preceding step, where it computes the keys of accepted tokens.  With
adaptive draft lengths or prompt lookup it is sampled later, see `sglang_mtpc.first_draft`.  All further tokens of the
autoregressive part come from SGLang's draft loop.

With a parallel part, a request carries the target's state and the draft layers' state between steps, as one tensor
[B, 2 d].  The parallel part also reads the states of the loop's passes.  Where the layers draft nothing, there is no
loop: the parallel part drafts from the layers' state, [B, d].
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel, get_schedule
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from torch import Tensor

from mtpc.draft import Draft
from mtpc.methods.drafter import split_drafts
from mtpc.metrics.draft_clock import DraftClock
from mtpc.to_device import copy_to_device
from sglang_mtpc import eagle_tree, served, verify
from sglang_mtpc.adaptive import AdaptiveChain, AdaptiveTree, Strategy, Whole
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.draft_limits import keep_limits
from sglang_mtpc.draft_strategies import (
    AutoregressiveChain,
    AutoregressiveTree,
    LoopOutput,
    ParallelDrafts,
    TwoPartChain,
    TwoPartTree,
)
from sglang_mtpc.drafting import Drafting
from sglang_mtpc.eagle_worker import EagleWorker, override_sizes
from sglang_mtpc.metrics import DraftMetrics, metrics_enabled
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.ranks import check_ranks
from sglang_mtpc.request_vocabularies import SGLangRequestVocabularies
from sglang_mtpc.runtime_states import without_drafts
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps
from sglang_mtpc.timing import make_dummy_step
from sglang_mtpc.weight_updates import warn_of_update


class AutoregressiveDraftWorker(EagleDraftWorker):
    """SGLang's draft worker with a drafter's own draft layers, draft vocabularies and parallel part.

    SGLang creates it, then calls `init_token_map`, `init_lm_head` and `init_cuda_graphs`.  In each decoding step it
    calls `draft`, then `_draft_extend_for_decode`; after a prompt `_draft_extend_for_prefill`.

    Attributes:
        drafts_nothing: Whether the draft layers only compute the state for the parallel part.
        loop_steps: Passes of the draft layers for the longest draft.
    """

    drafts_nothing = False
    strategy: Strategy | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        folder = Path(served.folder())
        check_ranks(folder)
        super().__init__(*args, **options)
        served.capture_state_below(self.target_worker.model_runner.model)
        device, config = torch.device(self.device), self.target_worker.model_config
        ranks = get_parallel().tp_rank, get_parallel().dp_rank
        self.clock = DraftClock.from_environment(device, *ranks, metered=metrics_enabled())
        self.steps = BatchSteps(self.target_worker.random_seed)
        self.vocabularies = served.vocabularies(config.model_path, device)
        self.requests: SGLangRequestVocabularies | None = None
        self.lengths = WorkerLengths.of_served(device)
        self.shape = served.shape()
        self.metrics = DraftMetrics.of_served(self.clock, self.vocabularies, self.shape.depth)
        # SGLang prepares its draft loop for these steps; layers that draft nothing make the first pass as well.
        steps, rest = split_drafts(served.config(), served.drafter_shape().depth)
        self.drafts_nothing, self.loop_steps = steps == 0, max(1, steps)
        self.speculative_num_steps = self.loop_steps
        self.parallel = self._parallel_drafter(rest) if rest else None
        self.strategy = self._strategy()

    def _parallel_drafter(self, depth: int) -> Drafting:
        """Return the parallel part that drafts ``depth`` tokens after the autoregressive part."""
        part = served.load_parallel_part(self.target_worker.model_config, torch.device(self.device)).shortened(depth)
        with_head_inputs = self.draft_runner.model.with_head_inputs if part.reads_head else None
        shape = DraftShape(depth, 1, depth) if self.draft_steps else served.drafter_shape()
        return Drafting(part, shape, self._mixes_prompt_lookup, with_head_inputs)

    @property
    def draft_steps(self) -> int:
        """Draft tokens of the autoregressive part."""
        return 0 if self.drafts_nothing else self.loop_steps

    @property
    def _keeps_target_states(self) -> bool:
        """Whether requests carry the target's states besides those of layers that draft before the parallel part."""
        return self.parallel is not None and self.draft_steps > 0

    @property
    def _mixes_prompt_lookup(self) -> bool:
        """Whether every draft token is sampled from the mixture with prompt lookup, whose weight may be 0."""
        return self.lengths is not None and self.shape.children == 1

    def _strategy(self) -> Strategy | None:
        """Return the strategy of each step; None: SGLang's unchanged loop drafts all tokens."""
        lengths, parallel, loop, lap = self.lengths, self.parallel, self.run_loop, self.clock.lap
        model, steps = self.draft_runner.model, self.loop_steps
        vocab_size = self.target_worker.model_config.vocab_size
        if parallel is None and lengths is None and not self.shape.borrowed:
            return None
        if not self.draft_steps and parallel is not None:
            whole = ParallelDrafts(parallel, lap)
            if lengths is None:
                return whole
            if self.shape.children > 1:
                return AdaptiveTree(lengths, whole, lap, vocab_size)
            return AdaptiveChain(lengths, whole.mixed, lap, vocab_size)
        if self.shape.children > 1:
            tree: Whole
            if parallel is None:
                eagle_tree.install()
                tree = AutoregressiveTree(loop, steps, self.shape.nodes)
            else:
                tree = TwoPartTree(loop, steps, self.shape, parallel.parallel, model, lap)
            return tree if lengths is None else AdaptiveTree(lengths, tree, lap, vocab_size)
        if parallel is None:
            assert lengths is not None  # only trees have borrowed nodes
            return AdaptiveChain(lengths, AutoregressiveChain(loop, model, lap).mixed, lap, vocab_size)
        chain = TwoPartChain(loop, steps, parallel, model, lap)
        return chain if lengths is None else AdaptiveChain(lengths, chain.mixed, lap, vocab_size)

    def init_token_map(self) -> None:
        """Use no token map of SGLang's: drafts would not match the distributions that verification reads."""
        self.hot_token_id = None

    def init_lm_head(self) -> None:
        """Share the target's embedding and head, and choose draft vocabularies by request where there are several.

        Raises:
            MTPCError: See `DraftLayersModel.share`.
        """
        numbers = None
        if self.vocabularies is not None and self.vocabularies.detector is not None:
            rows = len(self.req_to_token_pool.req_to_token)
            self.requests = SGLangRequestVocabularies(self.vocabularies.detector, rows, torch.device(self.device))
            self.requests.tally = None if self.metrics is None else self.metrics.tally
            numbers = self.requests.numbers
        model = self.draft_runner.model
        model.share(self.target_worker.model_runner.model, self.vocabularies, numbers)
        model.first_candidates = self.shape.children
        on_cpu = torch.device(self.device).type == "cpu"
        model.defers_first_logits = not self.draft_steps or (
            on_cpu and (self._mixes_prompt_lookup or (self.lengths is not None and self.parallel is not None))
        )
        served.announce(model.output.draft_logits, self.draft_steps)

    def init_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """Capture SGLang's CUDA graphs and those of the parallel part, and time decoding steps on a CPU."""
        super().init_cuda_graphs(*args, **options)
        if self.parallel is not None:
            config = self.target_worker.model_config
            states = torch.zeros(self.draft_steps + 1, config.hidden_size, dtype=config.dtype, device=self.device)
            graphs = getattr(self, "_specialized_graph_memory_usage", {})  # {}: not reported by this SGLang
            self.parallel.prepare(self.target_worker.model_runner, states, graphs)
        if self.lengths is not None:
            target = self.target_worker.model_runner
            self.lengths.time_steps(make_dummy_step(target), self._draft_dummy, get_schedule().max_running_requests)

    @torch.inference_mode()
    def _draft_dummy(self, requests: int) -> None:
        """Draft for dummy requests, to time it: a chain without attention, which is faster than a tree."""
        config, model = self.target_worker.model_config, self.draft_runner.model
        states = torch.zeros(requests, config.hidden_size, dtype=config.dtype, device=self.device)
        for _ in range(self.draft_steps):
            model.model.timed_pass(states)
            model.first_logits(states)
        if not self.draft_steps:
            model.model.timed_pass(states)
        if self.parallel is not None:
            self.parallel.draft_dummy(states[:, None].expand(-1, self.draft_steps + 1, -1).contiguous())

    def _capture_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """Capture SGLang's draft loop only where it drafts all tokens: SGLang sizes it by the verified tokens."""
        with override_sizes(self, steps=None if self.strategy is None else 1):  # 1: no loop
            super()._capture_cuda_graphs(*args, **options)

    def _rebuild_topk1_chain_buffers(self, *args: Any, **options: Any) -> None:
        """Prepare the links of SGLang's own chains, for the current draft length; no other chain has them."""
        if self.strategy is None:
            super()._rebuild_topk1_chain_buffers(*args, **options)

    def draft(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Draft the tokens after the first one, and return SGLang's ``EagleVerifyInput``."""
        with self.clock:
            if self.strategy is None:
                built = super().draft(batch, *args, **options)
            else:
                draft_input = batch.spec_info
                drafts = self.strategy(batch, self.steps.begin(batch))
                if isinstance(drafts, Draft):  # shorter where SGLang has chosen a shorter length
                    drafts = drafts.first(self.speculative_num_draft_tokens - 1)
                built = verify.verify_input(batch, draft_input, drafts, self.shape, self.target_worker)
            keep_limits(built, batch.reqs, self.shape.children == 1)
            return built

    def run_loop(self, batch: Any, steps: int, nodes: int, mixing: Mixing | None = None) -> LoopOutput:
        """Run SGLang's draft loop from the first draft token on, without a CUDA graph.

        Args:
            batch: SGLang's ``ScheduleBatch``, whose ``spec_info`` holds the first draft tokens.
            steps: Draft steps of the loop; it makes one pass fewer.
            nodes: Nodes of a tree, or tokens of a chain.
            mixing: State of the mixture with prompt lookup after the first token; None: no prompt lookup.

        Returns:
            The output of the loop, with the states of its passes where a parallel part reads them.
        """
        runner, children = self.draft_runner, self.shape.children
        mixed = nullcontext() if mixing is None else mixing.in_loop(runner)
        loop_state = runner.model.in_loop(keeps=self.parallel is not None)
        with override_sizes(self, steps=steps, tokens=nodes + 1), mixed, loop_state as states:
            pool = self.req_to_token_pool
            prepared = prepare_for_draft(batch.spec_info, pool, batch, None, runner, children, steps)[0]
            if steps > 1:
                self.draft_attn_backend.init_forward_metadata(prepared)
                prepared.mark_forward_metadata_ready()
            parents, scores, tokens, probs = self.draft_forward(prepared)
            return LoopOutput(parents, scores, tokens, probs, states)

    def draft_forward(self, *args: Any, **options: Any) -> Any:
        """Run and time SGLang's draft loop; a captured loop does not come here."""
        drafted = super().draft_forward(*args, **options)
        self.clock.lap("draft step 2" if self.speculative_num_steps == 2 else "draft step 2 and later")
        return drafted

    def _draft_extend_for_prefill(self, batch: Any, target_hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        """Compute the keys of a prompt and the first draft token.

        SGLang samples the first token for greedy requests as well; here they take the most probable one.  This is
        lossless: SGLang writes a temperature of 0 as a top-k of 1, so the target has one possible token.
        """
        target_states = None
        if self._keeps_target_states:
            last = torch.tensor(batch.extend_lens).cumsum(0) - 1
            target_states = target_hidden_states[copy_to_device(last, target_hidden_states.device)]
        draft_input = super()._draft_extend_for_prefill(batch, target_hidden_states, *args, **options)
        if draft_input.draft_probs is not None:
            best, drawn = draft_input.draft_probs.argmax(-1, keepdim=True), draft_input.topk_index
            draft_input.topk_index = torch.where(batch.sampling_info.top_ks[:, None] == 1, best, drawn)
            draft_input.topk_p = draft_input.draft_probs.gather(1, draft_input.topk_index)
        if target_states is not None:
            draft_input.hidden_states = _join_states(target_states, draft_input.hidden_states)
        return draft_input

    def _draft_extend_for_decode(self, batch: Any, batch_result: Any, *args: Any, **options: Any) -> None:
        """Compute the keys of accepted tokens and the first draft token of the next step."""
        with self.clock.resumed(), override_sizes(self, tokens=batch_result.speculative_num_draft_tokens):
            target_states = verify.last_accepted(batch_result) if self._keeps_target_states else None
            super()._draft_extend_for_decode(batch, batch_result, *args, **options)
            self.clock.lap("draft step 1")
            if target_states is not None:
                next_input = batch_result.next_draft_input
                next_input.hidden_states = _join_states(target_states, next_input.hidden_states)


def _join_states(target: Tensor, autoregressive: Tensor) -> Tensor:
    """Join the target's and the draft layers' states, [B, d] each, to [B, 2 d] in the target's dtype."""
    return torch.cat([target, autoregressive.to(target.dtype)], 1)


class AutoregressiveWorker(EagleWorker):
    """SGLang's worker for drafters with an autoregressive part."""

    draft_worker_class = AutoregressiveDraftWorker

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        verify.install()

    def build_adaptive_runtime_state(
        self, speculative_num_steps: int, speculative_num_draft_tokens: int, *args: Any, **options: Any
    ) -> SpecRuntimeState:
        """Build a runtime state of another draft length; only drafts that SGLang's own loop makes are shorter in it."""
        sizes = speculative_num_steps, speculative_num_draft_tokens
        state = super().build_adaptive_runtime_state(*sizes, *args, **options)
        if self._draft_worker.strategy is not None:
            state.draft_attn_backend = self._draft_worker.draft_attn_backend
        return state

    def apply_runtime_state(self, state: SpecRuntimeState, *args: Any, **options: Any) -> None:
        """Enter a runtime state."""
        super().apply_runtime_state(state, *args, **options)
        if self._draft_worker.strategy is not None:
            self._draft_worker.speculative_num_steps = self._draft_worker.loop_steps

    def weight_update_runners(self) -> list[tuple[str, Any]]:
        """Return no runner: tensors of a MiMo target have the names of FastMTP's layer, which stays as it is."""
        warn_of_update()
        return []

    def _build_trivial_verify_input(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Return SGLang's ``EagleVerifyInput`` of a step that drafts nothing."""
        return without_drafts(self, batch)

    def verify(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Verify as many tokens of each request as the step has drafted."""
        if self._draft_worker.metrics is not None:
            self._draft_worker.metrics.set_length(batch.spec_info.spec_steps)
        with override_sizes(self, tokens=batch.spec_info.draft_token_num):
            return super().verify(batch, *args, **options)
