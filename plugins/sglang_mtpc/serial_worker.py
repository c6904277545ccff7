"""SGLang's own EAGLE worker with the serial part of a drafter, and its window part after that.

SGLang drafts the first token at the end of the step before, where it computes the keys of what was accepted.  Where a
window part follows, a request carries between steps the target's state beside the layers', [B, 2 d] in one tensor; what
the serial part drafts after its first token is drafted in SGLang's loop, which hands over the states of its steps.
Where draft lengths are chosen, or prompt lookup drafts, the first token is drawn later, see `sglang_mtpc.first_draft`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel, get_schedule, get_spec
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2
from torch import Tensor

from mtpc.draft import Draft, Known, TreeDraft, concatenated
from mtpc.methods.drafter import draft_vocabularies, split_drafts
from mtpc.metrics.draft_clock import DraftClock
from mtpc.parallel.beams import Beams
from mtpc.to_device import sent
from sglang_mtpc import serial_tree, served, verify
from sglang_mtpc.beam_tree import draft_tree
from sglang_mtpc.draft_lengths import WorkerLengths, nothing
from sglang_mtpc.drafting import Drafting, Inputs
from sglang_mtpc.first_draft import draw_first
from sglang_mtpc.metrics import Watch, watched
from sglang_mtpc.mixing import Mixing
from sglang_mtpc.ranks import check_ranks, of_first_rank
from sglang_mtpc.request_vocabularies import RequestVocabularies
from sglang_mtpc.shape import Shape
from sglang_mtpc.step import Step, Steps
from sglang_mtpc.timing import step_of
from sglang_mtpc.token_map import vocabulary_values


class SerialDraftWorker(EagleDraftWorker):
    """Shares modules of the target, reads a token map as `mtpc.vocabulary` does, and drafts the window."""

    speculative_num_draft_tokens: int
    watch: Watch | None = None  # None: nobody watches

    def adopt(self, clock: DraftClock) -> None:
        """Complete a worker that SGLang has made as one of its own."""
        check_ranks(Path(served.folder()))
        served.hand_over(self.target_worker.model_runner.model)
        config = self.target_worker.model_config
        values = vocabulary_values(get_spec().speculative_token_map)
        self.clock, self.steps = clock, Steps(self.target_worker.random_seed)
        tokenizer = config.model_path
        self.vocabularies = draft_vocabularies(values, Path(served.folder()), served.config(), tokenizer)
        static = torch.device(self.device).type != "cpu"  # in CUDA graphs
        if static and self.vocabularies is not None and self.vocabularies.together() is None:
            self.vocabularies = None  # see `UnionLogits`
        self.requests: RequestVocabularies | None = None
        self.window: Drafting | None = None
        self.lengths = WorkerLengths.of_served(torch.device(self.device))
        self.shape = served.shape()
        self.watch = Watch.of_served(clock, self.vocabularies, self.shape.depth)
        # SGLang then prepares draft forward passes for the serial part's drafts only.
        self.speculative_num_steps, rest = split_drafts(served.config(), served.own_shape().depth)
        if rest:
            part = served.window(config, torch.device(self.device)).shortened(rest)
            completed = self.draft_runner.model.completed if part.reads_serial else None
            self.window = Drafting(part, Shape(rest, 1, rest), self._mixes, completed)
        if self.makes_tree:
            serial_tree.install()

    @property
    def _mixes(self) -> bool:
        """Whether all drafts are mixed with what would be copied, if only with nothing."""
        return self.lengths is not None and self.shape.children == 1

    @property
    def makes_tree(self) -> bool:
        """Whether the core makes the tree of SGLang's candidates: nodes are borrowed, or lengths are chosen."""
        trees = self.window is None and self.shape.children > 1
        return trees and (self.shape.borrowed > 0 or self.lengths is not None)

    def init_token_map(self) -> None:
        """None of SGLang's kind, whose drafts would lie outside of the distribution that is verified."""
        self.hot_token_id = None

    def init_lm_head(self) -> None:
        """Share the target's embedding and head, and keep the draft vocabularies of requests where there are several.

        Errors: `MTPCError`, see `SerialModel.share`.
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
        model.first_waits = (
            self.lengths is not None
            and model.lm_head.weight.device.type == "cpu"
            and (self._mixes or bool(self.window))
        )
        logits = model.draft_logits
        served.announce(None if logits is None else logits.summary, self.speculative_num_steps)

    def init_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """SGLang's, and those of the window."""
        super().init_cuda_graphs(*args, **options)
        if self.window is not None:
            config = self.target_worker.model_config
            places = self.speculative_num_steps + 1
            states = torch.zeros(places, config.hidden_size, dtype=config.dtype, device=self.device)
            graphs = getattr(self, "_specialized_graph_memory_usage", {})  # {}: this SGLang does not tell
            self.window.prepare(self.target_worker.model_runner, states, graphs)
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
        if self.window is not None:
            places = self.speculative_num_steps + 1
            self.window.for_nobody(states[:, None].expand(-1, places, -1).contiguous())

    def _capture_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """SGLang's; of the draft loop only where it drafts all that is verified, which is what SGLang sizes it by."""
        with self._loop_of(self.speculative_num_steps if self._drafts_alone else 1):  # 1: there is no loop
            super()._capture_cuda_graphs(*args, **options)

    @property
    def _drafts_alone(self) -> bool:
        """Whether SGLang's draft loop, as it is, drafts all tokens; otherwise `_loop` runs it, in no graph."""
        return self.window is None and self.lengths is None and not self.makes_tree

    @contextmanager
    def _loop_of(self, steps: int) -> Iterator[None]:
        """Let SGLang's draft loop have so many steps."""
        before = self.speculative_num_steps
        self.speculative_num_steps = steps
        try:
            yield
        finally:
            self.speculative_num_steps = before

    def draft(self, batch: Any, *args: Any, **options: Any) -> Any:
        """All drafts but the first, from it, and their input for verification."""
        with self.clock:
            if self._drafts_alone:
                return super().draft(batch, *args, **options)
            draft_input, step = batch.spec_info, self.steps.begin(batch)
            if self.window is not None:
                draft_input.hidden_states = of_first_rank(draft_input.hidden_states)
            self.speculative_num_draft_tokens = self.shape.nodes + 1  # the step before may have verified fewer
            if self.lengths is not None:
                drafts = self._draft_adaptively(batch, step, self.lengths)
            else:
                drafts = self._draft_whole(batch, step)
            return verify.verify_input(batch, draft_input, drafts, self.shape, self.target_worker)

    def _draft_whole(self, batch: Any, step: Step) -> Draft | TreeDraft:
        """The whole chain or tree of the drafter."""
        if self.window is None:
            parents, scores, tokens, _ = self._loop(batch)
            return TreeDraft(tokens, parents, scores)
        if self.shape.children == 1:
            return self._draft_both(batch, step, None, self.window)
        again = partial(self._second_states, batch) if self.speculative_num_steps > 1 else None
        model, window, lap = self.draft_runner.model, self.window.window, self.clock.lap
        return draft_tree(batch.spec_info, step, self.shape, model, window, again, lap)

    def _draft_adaptively(self, batch: Any, step: Step, lengths: WorkerLengths) -> Draft | TreeDraft:
        """A draft of the length of this step: the drafter's, mixed with what would be copied, then that alone."""
        draft_input, model = batch.spec_info, self.draft_runner.model
        lengths.begin(batch.reqs, step.mode == "greedy")
        chosen = lengths.choose()
        self.clock.lap("lengths")
        drafts = nothing(draft_input.bonus_tokens, self.target_worker.model_config.vocab_size, step.mode)
        if self.shape.children > 1:
            if not chosen.length:
                return drafts
            lengths.lengths.drafted_trees(self.shape.depth)
            return self._draft_whole(batch, step)
        copied = lengths.copied(self.shape.depth)
        if chosen.own:
            states = draft_input.hidden_states
            if self.window is not None:
                states = states.chunk(2, -1)[1].contiguous()
            mixing = draw_first(batch, step, copied, model, states)
            self.clock.lap("serial 1")
            if self.window is not None and chosen.own > lengths.lengths.budget.steps:
                drafts = self._draft_both(batch, step, mixing, self.window)
            else:
                draft_input.hidden_states = states
                mixing.drafted(draft_input.topk_index[:, 0])
                drafts = self._draft_serially(batch, chosen.own)
        drafts = lengths.completed(drafts, copied, chosen)
        self.clock.lap("lengths")
        return drafts

    def _draft_both(self, batch: Any, step: Step, mixing: Mixing | None, window: Drafting) -> Draft:
        """What is known -> what is left of the serial part -> window -> both parts' drafts."""
        draft_input, copied = batch.spec_info, None
        own, first = draft_input.hidden_states.chunk(2, -1)  # [B, d] each: the target's, and of the first serial step
        serial, states = Draft(draft_input.topk_index, draft_input.draft_probs), [own, first]
        if serial.probs is not None:
            serial = serial._replace(probs=serial.probs[:, None])
        if self.speculative_num_steps > 1:
            draft_input.hidden_states, draft_input.kept = first.contiguous(), []
            serial = self._draft_serially(batch)
            states += draft_input.kept
        if mixing is not None:
            mixing.drafted(serial.tokens[:, -1])
            copied = mixing.copying.remaining().first(window.shape.depth)
        tokens = torch.cat([draft_input.bonus_tokens[:, None].long(), serial.tokens], 1)
        known = Known(torch.stack([each.to(own.dtype) for each in states], 1), tokens)
        drafts = window(Inputs.of(known, step, copied), step.mode)
        self.clock.lap("window")
        assert isinstance(drafts, Draft)
        return concatenated([serial if drafts.probs is not None else serial._replace(probs=None), drafts])

    def _second_states(self, batch: Any, beams: Beams, first: Tensor) -> Tensor:
        """The layers' states [B k, d] after one pass of SGLang's loop for k prefixes of each request.

        first: [B, d], their states before.
        """
        draft_input, nodes = batch.spec_info, self.speculative_num_draft_tokens
        draft_input.topk_index, draft_input.topk_p = beams.tokens, beams.scores.exp()
        draft_input.hidden_states, draft_input.kept = first.contiguous(), []
        self.speculative_num_draft_tokens = beams.tokens.shape[1] + 1  # what the loop makes a tree of, for nobody
        self._draft_serially(batch)
        self.speculative_num_draft_tokens = nodes
        states: Tensor
        (states,) = draft_input.kept
        return states

    def _draft_serially(self, batch: Any, most: int | None = None) -> Draft:
        """What SGLang's draft loop drafts: so many tokens, 1 or more; None: those that are the serial part's."""
        with self._loop_of(self.speculative_num_steps if most is None else most):
            return Draft(*self._loop(batch)[2:])

    def _loop(self, batch: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """SGLang's draft loop from the first draft on, of fewer drafts than will be verified.

        Its tree, of a chain nothing that is needed, then the drafts and the distributions of a chain's.
        """
        runner, steps, children = self.draft_runner, self.speculative_num_steps, self.shape.children
        prepared = prepare_for_draft(batch.spec_info, self.req_to_token_pool, batch, None, runner, children, steps)[0]
        if steps > 1:
            self.draft_attn_backend.init_forward_metadata(prepared)
            prepared.mark_forward_metadata_ready()
        drafted: tuple[Tensor, Tensor, Tensor, Tensor] = self.draft_forward(prepared)
        return drafted

    def draft_forward(self, *args: Any, **options: Any) -> Any:
        """SGLang's draft loop, where it is in no graph."""
        drafted = super().draft_forward(*args, **options)
        self._lap()
        return drafted

    def _lap(self) -> None:
        """What SGLang's draft loop has taken."""
        self.clock.lap("serial 2" if self.speculative_num_steps == 2 else "serial 2 and later")

    def _draft_extend_for_prefill(self, batch: Any, target_hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        """The keys of a prompt, and the first draft: of a greedy request the likeliest token, where SGLang draws one.

        SGLang writes a temperature of 0 as a top-k of 1; the target then has one possible token, so no draft, however
        it was chosen, changes what is said.
        """
        own = None
        if self.window is not None:
            last = torch.tensor(batch.extend_lens).cumsum(0) - 1
            own = target_hidden_states[sent(last, target_hidden_states.device)]
        draft_input = super()._draft_extend_for_prefill(batch, target_hidden_states, *args, **options)
        if draft_input.draft_probs is not None:
            best, drawn = draft_input.draft_probs.argmax(-1, keepdim=True), draft_input.topk_index
            draft_input.topk_index = torch.where(batch.sampling_info.top_ks[:, None] == 1, best, drawn)
            draft_input.topk_p = draft_input.draft_probs.gather(1, draft_input.topk_index)
        if own is not None:
            draft_input.hidden_states = _beside(own, draft_input.hidden_states)
        return draft_input

    def _draft_extend_for_decode(self, batch: Any, batch_result: Any, *args: Any, **options: Any) -> None:
        """The keys of what was accepted, and the next step's first draft, if it does not wait."""
        with self.clock.resumed():
            own = None if self.window is None else verify.last_accepted(batch_result)
            super()._draft_extend_for_decode(batch, batch_result, *args, **options)
            self.clock.lap("serial 1")
            if own is not None:
                next_input = batch_result.next_draft_input
                next_input.hidden_states = _beside(own, next_input.hidden_states)


def _beside(own: Tensor, serial: Tensor) -> Tensor:
    """The target's state and the layer's of each request, [B, d] each: [B, 2 d], in the target's dtype."""
    return torch.cat([own, serial.to(own.dtype)], 1)


class SerialWorker(EAGLEWorkerV2):
    """Chooses the draft vocabularies of a batch before SGLang runs a step of it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        ranks = get_parallel().tp_rank, get_parallel().dp_rank
        clock = DraftClock.from_environment(torch.device(self.device), *ranks, metered=watched())
        self._draft_worker.__class__ = SerialDraftWorker  # SGLang's worker names the class of the draft worker itself
        self._draft_worker.adopt(clock)
        verify.install()

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """One step of the scheduler, by SGLang: its ``GenerationBatchResult``."""
        requests = self._draft_worker.requests
        if requests is not None:
            requests.choose(batch.reqs)
        if self._draft_worker.watch is not None:
            self._draft_worker.watch.drafting(batch, None if requests is None else requests.chosen)
        return super().forward_batch_generation(batch, *args, **options)

    def verify(self, batch: Any, *args: Any, **options: Any) -> Any:
        """SGLang's verification and, after it, the layer's keys: of as many tokens as the step has drafted."""
        if self._draft_worker.watch is not None:
            self._draft_worker.watch.cut(batch.spec_info.spec_steps)
        width = batch.spec_info.draft_token_num
        self.speculative_num_draft_tokens = self._draft_worker.speculative_num_draft_tokens = width
        return super().verify(batch, *args, **options)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], *args: Any, **options: Any) -> None:
        """Called by SGLang, step after step, once it has the verdicts on the host."""
        super().on_verify_complete_cpu(num_correct_drafts_per_req, *args, **options)
        if self._draft_worker.watch is not None:
            self._draft_worker.watch.verified(num_correct_drafts_per_req)
