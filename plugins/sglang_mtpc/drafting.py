"""Drafting: what the target has left of each request becomes a chain or a tree, in a CUDA graph once captured.

Between the worker and a captured draft lie buffers that never move; a graph is captured for each batch size and mode,
and a batch runs in the next larger one.  Noise is a function of counters, so every tensor-parallel rank drafts the
same from its own whole copy of the drafter, and nothing is exchanged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.drafter import Draft, Drafter, TreeDraft
from mtpc.drafter.drafter import Mode
from mtpc.drafter.single import drafting_for_one
from mtpc.noise import counter_uniforms
from sglang_mtpc.settings import Shape

Drafts = Draft | TreeDraft
Replay = Callable[[], object]
# Runs a function and returns what runs it again, with the tensors that it then overwrites.
Recorder = Callable[[Callable[[], Drafts]], tuple[Replay, Drafts]]


class Inputs(NamedTuple):
    """One row for each request.

    hidden: [B, d] of the position that predicted the pending token, after the target's final norm.  token: int64 [B],
    the pending token, sampled by the target and not yet computed.  temperature: float32 [B], 0 for greedy requests.
    seeds, positions: int64 [B], the keys of the noise.
    """

    hidden: Tensor
    token: Tensor
    temperature: Tensor
    seeds: Tensor
    positions: Tensor


class Drafting:
    """A drafter for drafts of one shape; see `capture` for its CUDA graphs."""

    def __init__(self, drafter: Drafter, shape: Shape) -> None:
        self.drafter, self.shape = drafter, shape
        self.draft_one = drafter.draft  # for batches of one request; see `compile_for_one`
        self.sizes: list[int] = []
        self.graphs: dict[tuple[int, Mode], tuple[Replay, Drafts]] = {}

    def __call__(self, inputs: Inputs, mode: Mode) -> Drafts:
        """Drafts of all rows; from a graph they are overwritten by the next call.

        mode: "greedy" when every temperature is 0, "sampled" when none is, "mixed" otherwise.
        """
        rows = len(inputs.token)
        place = bisect_left(self.sizes, rows)
        if place == len(self.sizes):
            return self.compute(inputs, mode)
        for buffer, value in zip(self.buffers, inputs, strict=True):
            buffer[:rows].copy_(value)
        replay, drafts = self.graphs[self.sizes[place], _captured(mode)]
        replay()
        return _first(drafts, rows)

    def compute(self, inputs: Inputs, mode: Mode) -> Drafts:
        """Draft without a graph: static shapes, and nothing waits for the host."""
        hidden, token, temperature, seeds, positions = inputs
        greedy = mode == "greedy"
        if self.shape.children > 1:
            tempered = None if greedy else temperature
            steps, children, nodes = self.shape
            return self.drafter.draft_tree(hidden, token, tempered, nodes, children, depth=steps)
        draft_chain = self.draft_one if len(token) == 1 else self.drafter.draft
        if greedy:
            return draft_chain(hidden, token, None, None, self.shape.steps, mode)
        noise = counter_uniforms(seeds, positions, self.drafter.noise_size)
        draft = draft_chain(hidden, token, temperature, noise, self.shape.steps, mode)
        assert draft.probs is not None
        # SGLang's kernel takes a probability that rounding has put above 1 for no probability and rejects the draft.
        return Draft(draft.tokens, draft.probs.clamp_max(1.0))

    def compile_for_one(self, hidden: Tensor) -> None:
        """Compile the chains of one request, for a CPU; hidden: [1, d], of the target's dtype."""
        if self.shape.children > 1:
            return
        self.draft_one = drafting_for_one(self.drafter)
        token = torch.zeros(1, dtype=torch.int64)
        modes: tuple[Mode, ...] = ("greedy", "sampled")
        for mode in modes:
            self.compute(Inputs(hidden, token, torch.ones(1), token, token), mode)

    def capture(self, sizes: Sequence[int], hidden: Tensor, record: Recorder) -> None:
        """Capture the drafts of these batch sizes; hidden: [max(sizes), d], of the target's dtype and device."""
        rows, device = len(hidden), hidden.device
        token, seeds, positions = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(3))
        self.buffers = Inputs(hidden, token, torch.ones(rows, device=device), seeds, positions)
        modes: tuple[Mode, ...] = ("greedy", "mixed")
        for size in sorted(sizes, reverse=True):  # the largest first: the smaller ones fit into its memory
            inputs = Inputs(*(buffer[:size] for buffer in self.buffers))
            for mode in modes:
                self.graphs[size, mode] = record(partial(self.compute, inputs, mode))
        self.sizes = sorted(sizes)


def _captured(mode: Mode) -> Mode:
    """The mode of the graph that serves a batch: a mixed one serves sampled rows as well."""
    return "greedy" if mode == "greedy" else "mixed"


def _first(drafts: Drafts, rows: int) -> Drafts:
    """Without the rows that a graph has beyond the batch."""
    if isinstance(drafts, TreeDraft):
        return TreeDraft(drafts.tokens[:rows], drafts.parents[:rows])
    return Draft(drafts.tokens[:rows], None if drafts.probs is None else drafts.probs[:rows])


class GraphRecorder:
    """Records calls as CUDA graphs that share one memory pool."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, call: Callable[[], Drafts]) -> tuple[Replay, Drafts]:
        """Run ``call`` once to warm up, then capture it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            drafts = call()
        return graph.replay, drafts
