"""SGLang's own EAGLE worker with the autoregressive part of a drafter, and its parallel part after that.

SGLang drafts the first token at the end of the step before, where it computes the keys of what was accepted.  Where a
parallel part follows, a request carries between steps the target's state beside the layers', [B, 2 d] in one tensor; what
the autoregressive part drafts after its first token is drafted in SGLang's loop, which hands over the states of its steps.
Where draft lengths are chosen, or prompt lookup drafts, the first token is drawn later, see `sglang_mtpc.first_draft`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel, get_schedule, get_spec
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from torch import Tensor

from mtpc.methods.drafter import draft_vocabularies, split_drafts
from mtpc.metrics.draft_clock import DraftClock
from mtpc.to_device import copy_to_device
from sglang_mtpc import eagle_tree, served, verify
from sglang_mtpc.adaptive import AdaptiveChain, AdaptiveTree, Strategy
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.draft_strategies import AutoregressiveChain, AutoregressiveTree, Looped, TwoPartChain, TwoPartTree
from sglang_mtpc.drafting import Drafting
from sglang_mtpc.eagle_worker import EagleWorker, sized
from sglang_mtpc.metrics import Watch, watched
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.ranks import check_ranks
from sglang_mtpc.request_vocabularies import RequestVocabularies
from sglang_mtpc.shape import Shape
from sglang_mtpc.step import Steps
from sglang_mtpc.timing import step_of
from sglang_mtpc.token_map import vocabulary_values


class AutoregressiveDraftWorker(EagleDraftWorker):
    """Shares modules of the target, reads a token map as `mtpc.vocabulary` does, and drafts the window."""

    def __init__(self, *args: Any, **options: Any) -> None:
        folder = Path(served.folder())
        check_ranks(folder)
        super().__init__(*args, **options)
        served.hand_over(self.target_worker.model_runner.model)
        device, config = torch.device(self.device), self.target_worker.model_config
        ranks = get_parallel().tp_rank, get_parallel().dp_rank
        self.clock = DraftClock.from_environment(device, *ranks, metered=watched())
        self.steps = Steps(self.target_worker.random_seed)
        values = vocabulary_values(get_spec().speculative_token_map)
        self.vocabularies = draft_vocabularies(values, folder, served.config(), config.model_path)
        static = device.type != "cpu"  # in CUDA graphs
        if static and self.vocabularies is not None and self.vocabularies.together() is None:
            self.vocabularies = None  # see `UnionLogits`
        self.requests: RequestVocabularies | None = None
        self.lengths = WorkerLengths.of_served(device)
        self.shape = served.shape()
        self.watch = Watch.of_served(self.clock, self.vocabularies, self.shape.depth)  # None: nobody watches
        # SGLang then prepares draft forward passes for the autoregressive part's drafts only.
        self.speculative_num_steps, rest = split_drafts(served.config(), served.own_shape().depth)
        self.parallel = self._window(rest) if rest else None
        self.strategy = self._strategy()

    def _window(self, depth: int) -> Drafting:
        """The window behind the autoregressive part, for so many tokens."""
        part = served.parallel(self.target_worker.model_config, torch.device(self.device)).shortened(depth)
        completed = self.draft_runner.model.completed if part.reads_autoregressive else None
        return Drafting(part, Shape(depth, 1, depth), self._mixes, completed)

    @property
    def _mixes(self) -> bool:
        """Whether all drafts are mixed with what would be copied, if only with nothing."""
        return self.lengths is not None and self.shape.children == 1

    def _strategy(self) -> Strategy | None:
        """What makes the drafts of a step; None: SGLang's loop, as it is, makes them all."""
        lengths, parallel, loop, lap = self.lengths, self.parallel, self.run_loop, self.clock.lap
        model, steps = self.draft_runner.model, self.speculative_num_steps
        vocab_size = self.target_worker.model_config.vocab_size
        if parallel is None and lengths is None and not self.shape.borrowed:
            return None
        if self.shape.children > 1:
            tree: Strategy
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
        """None of SGLang's kind, whose drafts would lie outside of the distribution that is verified."""
        self.hot_token_id = None

    def init_lm_head(self) -> None:
        """Share the target's embedding and head, and keep the draft vocabularies of requests where there are several.

        Errors: `MTPCError`, see `DraftLayersModel.share`.
        """
        numbers = None
        if self.vocabularies is not None and self.vocabularies.detector is not None:
            rows = len(self.req_to_token_pool.req_to_token)
            self.requests = RequestVocabularies(self.vocabularies.detector, rows, torch.device(self.device))
            self.requests.tally = None if self.watch is None else self.watch.tally
            numbers = self.requests.numbers
        model = self.draft_runner.model
        model.share(self.target_worker.model_runner.model, self.vocabularies, numbers)
        model.first_candidates = self.shape.children
        on_cpu = model.lm_head.weight.device.type == "cpu"
        model.first_waits = on_cpu and (self._mixes or (self.lengths is not None and self.parallel is not None))
        logits = model.draft_logits
        served.announce(None if logits is None else logits.summary, self.speculative_num_steps)

    def init_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """SGLang's, and those of the window."""
        super().init_cuda_graphs(*args, **options)
        if self.parallel is not None:
            config = self.target_worker.model_config
            places = self.speculative_num_steps + 1
            states = torch.zeros(places, config.hidden_size, dtype=config.dtype, device=self.device)
            graphs = getattr(self, "_specialized_graph_memory_usage", {})  # {}: this SGLang does not tell
            self.parallel.prepare(self.target_worker.model_runner, states, graphs)
        if self.lengths is not None:
            target = self.target_worker.model_runner
            self.lengths.time(step_of(target), self._draft_for_nobody, get_schedule().max_running_requests)

    @torch.inference_mode()
    def _draft_for_nobody(self, requests: int) -> None:
        """Draft for so many requests, to time it: attention is left out, and trees take longer than this chain."""
        config, model = self.target_worker.model_config, self.draft_runner.model
        states = torch.zeros(requests, config.hidden_size, dtype=config.dtype, device=self.device)
        for _ in range(self.speculative_num_steps):
            model.model.timed_pass(states)
            model.first_logits(states)
        if self.parallel is not None:
            places = self.speculative_num_steps + 1
            self.parallel.for_nobody(states[:, None].expand(-1, places, -1).contiguous())

    def _capture_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """SGLang's; of the draft loop only where it drafts all that is verified, which is what SGLang sizes it by."""
        with sized(self, steps=None if self.strategy is None else 1):  # 1: there is no loop
            super()._capture_cuda_graphs(*args, **options)

    def draft(self, batch: Any, *args: Any, **options: Any) -> Any:
        """All drafts but the first, from it, and their input for verification."""
        with self.clock:
            if self.strategy is None:
                return super().draft(batch, *args, **options)
            draft_input = batch.spec_info
            drafts = self.strategy(batch, self.steps.begin(batch))
            return verify.verify_input(batch, draft_input, drafts, self.shape, self.target_worker)

    def run_loop(self, batch: Any, steps: int, nodes: int, mixing: Mixing | None = None) -> Looped:
        """SGLang's draft loop from the first draft on, in no graph, of fewer drafts than will be verified.

        steps: of the loop, whose passes are one fewer.  nodes: of a tree, or tokens of a chain.  mixing: how far the
        drafts have come that are mixed with what would be copied; None: they are not.
        """
        runner, children = self.draft_runner, self.shape.children
        beside = runner.model.in_loop(mixing, keeps=self.parallel is not None)
        with sized(self, steps=steps, tokens=nodes + 1), beside as states:
            pool = self.req_to_token_pool
            prepared = prepare_for_draft(batch.spec_info, pool, batch, None, runner, children, steps)[0]
            if steps > 1:
                self.draft_attn_backend.init_forward_metadata(prepared)
                prepared.mark_forward_metadata_ready()
            parents, scores, tokens, probs = self.draft_forward(prepared)
            return Looped(parents, scores, tokens, probs, states)

    def draft_forward(self, *args: Any, **options: Any) -> Any:
        """SGLang's draft loop, where it is in no graph."""
        drafted = super().draft_forward(*args, **options)
        self.clock.lap("draft step 2" if self.speculative_num_steps == 2 else "draft step 2 and later")
        return drafted

    def _draft_extend_for_prefill(self, batch: Any, target_hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        """The keys of a prompt, and the first draft: of a greedy request the likeliest token, where SGLang draws one.

        SGLang writes a temperature of 0 as a top-k of 1; the target then has one possible token, so no draft, however
        it was chosen, changes what is said.
        """
        own = None
        if self.parallel is not None:
            last = torch.tensor(batch.extend_lens).cumsum(0) - 1
            own = target_hidden_states[copy_to_device(last, target_hidden_states.device)]
        draft_input = super()._draft_extend_for_prefill(batch, target_hidden_states, *args, **options)
        if draft_input.draft_probs is not None:
            best, drawn = draft_input.draft_probs.argmax(-1, keepdim=True), draft_input.topk_index
            draft_input.topk_index = torch.where(batch.sampling_info.top_ks[:, None] == 1, best, drawn)
            draft_input.topk_p = draft_input.draft_probs.gather(1, draft_input.topk_index)
        if own is not None:
            draft_input.hidden_states = _beside(own, draft_input.hidden_states)
        return draft_input

    def _draft_extend_for_decode(self, batch: Any, batch_result: Any, *args: Any, **options: Any) -> None:
        """The keys of what was accepted of as many tokens as were verified, and the next step's first draft."""
        with self.clock.resumed(), sized(self, tokens=batch_result.speculative_num_draft_tokens):
            own = None if self.parallel is None else verify.last_accepted(batch_result)
            super()._draft_extend_for_decode(batch, batch_result, *args, **options)
            self.clock.lap("draft step 1")
            if own is not None:
                next_input = batch_result.next_draft_input
                next_input.hidden_states = _beside(own, next_input.hidden_states)


def _beside(own: Tensor, autoregressive: Tensor) -> Tensor:
    """The target's state and the layer's of each request, [B, d] each: [B, 2 d], in the target's dtype."""
    return torch.cat([own, autoregressive.to(own.dtype)], 1)


class AutoregressiveWorker(EagleWorker):
    """SGLang's own worker for drafters with an autoregressive part."""

    drafts_with = AutoregressiveDraftWorker

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        verify.install()

    def verify(self, batch: Any, *args: Any, **options: Any) -> Any:
        """SGLang's verification of as many tokens of each request as the step has drafted."""
        if self._draft_worker.watch is not None:
            self._draft_worker.watch.cut(batch.spec_info.spec_steps)
        with sized(self, tokens=batch.spec_info.draft_token_num):
            return super().verify(batch, *args, **options)
