"""The parallel part's drafts: what is known of each request becomes a chain or a tree, in a CUDA graph once captured.

Between the worker and a captured draft lie buffers that never move; a graph is captured for each batch size and mode,
and a batch runs in the next larger one.  Noise is a function of counters, so every tensor-parallel rank drafts the
same from its own whole copy of the window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from sglang.srt.distributed.parallel_state import graph_capture
from torch import Tensor

from mtpc.cuda_graph import capture_graph
from mtpc.draft import Draft, DraftContext, Mode, TreeDraft, concat_requests
from mtpc.noise import counter_uniforms
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.compiled import drafting_for_one
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.mixture import Copied, Copying
from sglang_mtpc.shape import Shape
from sglang_mtpc.step import Step

GRAPHS = "draft_decode"  # as SGLang names the graphs of its own drafts
Drafts = Draft | TreeDraft
Replay = Callable[[], object]
# Runs a function and returns what runs it again, with the tensors that it then overwrites.
Recorder = Callable[[Callable[[], Drafts]], tuple[Replay, Drafts]]


class Inputs(NamedTuple):
    """One row for each request.

    states, tokens: what is `DraftContext`; the last token is the one to draft after.  temperature: float32 [B], 0 for greedy
    requests.  seeds, positions: int64 [B], the keys of the noise.  copied, chances: see `Copied`; None: nothing is.
    """

    states: Tensor
    tokens: Tensor
    temperature: Tensor
    seeds: Tensor
    positions: Tensor
    copied: Tensor | None = None
    chances: Tensor | None = None

    @classmethod
    def of(cls, known: DraftContext, step: Step, copied: Copied | None = None) -> Inputs:
        """What is known, the step, and what may be copied instead of drafted."""
        none = None, None
        return cls(
            known.states,
            known.tokens,
            step.temperature,
            step.seeds,
            step.positions,
            *(none if copied is None else copied),
        )

    def of_rows(self, rows: slice) -> Inputs:
        """Some rows alone."""
        copied, chances = (None if tensor is None else tensor[rows] for tensor in (self.copied, self.chances))
        needed = self.states[rows], self.tokens[rows], self.temperature[rows], self.seeds[rows]
        return Inputs(*needed, self.positions[rows], copied, chances)

    def copying(self) -> Copying | None:
        """Before the first token."""
        if self.copied is None or self.chances is None:
            return None
        return Copying.begin(Copied(self.copied, self.chances))


class Drafting:
    """A parallel part for drafts of one shape; see `prepare` for its CUDA graphs.

    copies: whether all inputs say what may be copied.  completed: adds what a window reads that goes on from a serial
    part; None: the window needs nothing but states and tokens.
    """

    def __init__(
        self,
        parallel: ParallelPart,
        shape: Shape,
        copies: bool = False,
        completed: Callable[[DraftContext], DraftContext] | None = None,
    ) -> None:
        self.parallel, self.shape, self.copies = parallel.shortened(shape.depth), shape, copies
        self.completed = completed
        self.draft_one = self.parallel.draft  # for batches of one request; see `compile_for_one`
        self.sizes: list[int] = []
        self.graphs: dict[tuple[int, Mode], tuple[Replay, Drafts]] = {}

    def __call__(self, inputs: Inputs, mode: Mode) -> Drafts:
        """Drafts of all rows; from a graph they are overwritten by the next call.

        mode: "greedy" when every temperature is 0, "sampled" when none is, "mixed" otherwise.
        """
        rows = len(inputs.tokens)
        larger = bisect_left(self.sizes, rows)
        if larger == len(self.sizes):
            return self.compute(inputs, mode)
        for buffer, value in zip(self.buffers, inputs, strict=True):
            if buffer is not None and value is not None:
                buffer[:rows].copy_(value)
        replay, drafts = self.graphs[self.sizes[larger], _captured(mode)]
        replay()
        return _first(drafts, rows)

    def compute(self, inputs: Inputs, mode: Mode, kept: Tensor | None = None) -> Drafts:
        """Draft without a graph: static shapes, and nothing waits for the host.

        kept: float32 [B, K, V], where a chain's distributions are to lie; None: anywhere.
        """
        known, (depth, children, nodes, count) = DraftContext(inputs.states, inputs.tokens), self.shape
        if self.completed is not None:
            known = self.completed(known)
        if children > 1:
            heat = None if mode == "greedy" else inputs.temperature
            return borrow_nodes(self.parallel.draft_tree(known, heat, nodes, children, depth=depth), count)
        rows, whole = len(inputs.tokens), None
        parts = list(self.parallel.parts(rows, depth))
        if len(parts) == 1:
            return self._chain(known, inputs, mode, kept)
        if mode != "greedy":
            shape = rows, depth, self.parallel.vocab_size
            whole = torch.empty(shape, device=inputs.states.device) if kept is None else kept
        chains = []
        for part in parts:
            own = None if whole is None else whole[part]
            chains.append(self._chain(known.of_rows(part), inputs.of_rows(part), mode, own)._replace(probs=None))
        return concat_requests(chains)._replace(probs=whole)

    def _chain(self, known: DraftContext, inputs: Inputs, mode: Mode, kept: Tensor | None) -> Draft:
        """`compute` of a chain."""
        depth, copying = self.shape.depth, inputs.copying()
        draft_chain = self.draft_one if len(inputs.tokens) == 1 else self.parallel.draft
        if mode == "greedy":
            return draft_chain(known, None, None, depth, mode, copying)
        noise = counter_uniforms(inputs.seeds, inputs.positions, depth)
        draft = draft_chain(known, inputs.temperature, noise, depth, mode, copying)
        assert draft.probs is not None
        # SGLang's kernel takes a probability that rounding has put above 1 for no probability and rejects the draft.
        return draft._replace(probs=torch.clamp_max(draft.probs, 1.0, out=kept))

    def prepare(self, runner: Any, states: Tensor, graphs: dict[str, float]) -> None:
        """Capture drafts for the batch sizes for which the target's verification is captured; on a CPU, compile one.

        runner: SGLang's ``ModelRunner`` of the target.  states: [s + 1, d], as the known ones of a request.  graphs:
        the memory of graphs by SGLang's names, GiB; that of the drafts' is added to it.
        """
        if states.device.type == "cpu":
            self.compile_for_one(states[None])
            return
        sizes = getattr(runner.decode_cuda_graph_runner, "capture_bs", None)
        if sizes:
            shared = partial(capture_graph, pool=torch.cuda.graph_pool_handle())
            free, _ = torch.cuda.mem_get_info()
            with graph_capture():
                self.capture(sizes, states.repeat(max(sizes), 1, 1), shared)
            graphs[GRAPHS] = graphs.get(GRAPHS, 0.0) + (free - torch.cuda.mem_get_info()[0]) / 2**30

    def for_nobody(self, states: Tensor) -> None:
        """Draft for nobody, to time it; states: [B, s + 1, d]."""
        tokens = torch.zeros(states.shape[:2], dtype=torch.int64, device=states.device)
        key = tokens[:, 0]
        self.compute(Inputs(states, tokens, key.float(), key, key, *self._nothing_copied(tokens)), "greedy")

    def compile_for_one(self, states: Tensor) -> None:
        """Compile the chains of one request, for a CPU; states: [1, s + 1, d], of the window's dtype."""
        if self.shape.children > 1:
            return
        self.draft_one = drafting_for_one(self.parallel)
        tokens, key = torch.zeros(states.shape[:2], dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        modes: tuple[Mode, ...] = ("greedy", "sampled")
        for mode in modes:
            self.compute(Inputs(states, tokens, torch.ones(1), key, key, *self._nothing_copied(tokens)), mode)

    def capture(self, sizes: Sequence[int], states: Tensor, record: Recorder) -> None:
        """Capture the drafts of these batch sizes; states: [max(sizes), s + 1, d], of the window's dtype and device.

        The distributions of all of them lie in one tensor: what a graph returns no other one can use as its memory.
        """
        rows, device = len(states), states.device
        tokens = torch.zeros(states.shape[:2], dtype=torch.int64, device=device)
        seeds, positions = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))
        temperature = torch.ones(rows, device=device)
        self.buffers = Inputs(states, tokens, temperature, seeds, positions, *self._nothing_copied(tokens))
        kept = None
        if self.shape.children == 1:
            kept = torch.zeros(rows, self.shape.depth, self.parallel.vocab_size, device=device)
        modes: tuple[Mode, ...] = ("greedy", "mixed")
        for size in sorted(sizes, reverse=True):  # the largest first: the smaller ones fit into its memory
            inputs = self.buffers.of_rows(slice(size))
            for mode in modes:
                own = None if kept is None else kept[:size]
                self.graphs[size, mode] = record(partial(self.compute, inputs, mode, own))
        self.sizes = sorted(sizes)

    def _nothing_copied(self, tokens: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """For as many rows as there are of tokens, int64 [B, s + 1]; none where nothing is ever copied."""
        if not self.copies:
            return None, None
        chances = torch.zeros(len(tokens), self.shape.depth, device=tokens.device)
        return chances.long(), chances


def _captured(mode: Mode) -> Mode:
    """The mode of the graph that serves a batch: a mixed one serves sampled rows as well."""
    return "greedy" if mode == "greedy" else "mixed"


def _first(drafts: Drafts, rows: int) -> Drafts:
    """Without the rows that a graph has beyond the batch."""
    if isinstance(drafts, TreeDraft):
        return TreeDraft(*(each[:rows] for each in drafts))
    return Draft(*(None if each is None else each[:rows] for each in drafts))  # type: ignore[arg-type]
