"""Drafting with the parallel part: chains and trees of a batch, in CUDA graphs where they are captured.

A graph is captured for each batch size and mode; a batch runs in the next larger one and copies its inputs into static
buffers.  Noise is a function of seeds and positions, so every tensor-parallel rank drafts the same tokens from its own
full copy of the parallel part.
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
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchStep

GRAPHS = "draft_decode"  # SGLang's name for the graphs of its draft loop
Drafts = Draft | TreeDraft
Replay = Callable[[], object]
# Captures a function; returns a function that replays it, and the tensors that each replay overwrites.
Recorder = Callable[[Callable[[], Drafts]], tuple[Replay, Drafts]]


class DraftInputs(NamedTuple):
    """Inputs of the parallel part, one row for each of B requests.

    Attributes:
        states: Known states [B, s + 1, d], see `DraftContext`; s is the number of autoregressive draft tokens.
        tokens: Known tokens, int64 [B, s + 1]; drafting continues after the last one.
        temperature: float32 [B], 0 for greedy requests.
        seeds: int64 [B], with ``positions`` the keys of the noise.
        positions: int64 [B].
        copied: Tokens to copy, int64 [B, K], see `Copied`; None without prompt lookup.
        chances: Weights of these tokens in the mixture, float32 [B, K], see `Copied`; None without prompt lookup.
    """

    states: Tensor
    tokens: Tensor
    temperature: Tensor
    seeds: Tensor
    positions: Tensor
    copied: Tensor | None = None
    chances: Tensor | None = None

    @classmethod
    def of(cls, known: DraftContext, step: BatchStep, copied: Copied | None = None) -> DraftInputs:
        """Return the inputs for a draft context, a step and the tokens to copy."""
        none = None, None
        return cls(
            known.states,
            known.tokens,
            step.temperature,
            step.seeds,
            step.positions,
            *(none if copied is None else copied),
        )

    def of_rows(self, rows: slice) -> DraftInputs:
        """Return the inputs of some requests."""
        copied, chances = (None if tensor is None else tensor[rows] for tensor in (self.copied, self.chances))
        needed = self.states[rows], self.tokens[rows], self.temperature[rows], self.seeds[rows]
        return DraftInputs(*needed, self.positions[rows], copied, chances)

    def copying(self) -> Copying | None:
        """Return the mixture with prompt lookup, before the first token; None without prompt lookup."""
        if self.copied is None or self.chances is None:
            return None
        return Copying.begin(Copied(self.copied, self.chances))


class Drafting:
    """Drafts with a parallel part, always in one shape.

    `prepare` is called once, while the server starts; then each call drafts for a batch.

    Args:
        parallel: The parallel part.
        shape: Shape of the drafts.
        copies: Whether all inputs have tokens to copy.
        with_head_inputs: Adds the layer inputs and the output head that a parallel part after an autoregressive part
            reads; None: it reads states and tokens only.
    """

    def __init__(
        self,
        parallel: ParallelPart,
        shape: DraftShape,
        copies: bool = False,
        with_head_inputs: Callable[[DraftContext], DraftContext] | None = None,
    ) -> None:
        self.parallel, self.shape, self.copies = parallel.shortened(shape.depth), shape, copies
        self.with_head_inputs = with_head_inputs
        self.draft_one = self.parallel.draft  # for batches of one request; see `compile_for_one`
        self.sizes: list[int] = []
        self.graphs: dict[tuple[int, Mode], tuple[Replay, Drafts]] = {}

    def __call__(self, inputs: DraftInputs, mode: Mode) -> Drafts:
        """Draft for a batch; the next call overwrites drafts that come from a CUDA graph.

        Args:
            inputs: Inputs of the batch.
            mode: "greedy" when every temperature is 0, "sampled" when none is, "mixed" otherwise.

        Returns:
            A chain or a tree for each request.
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

    def compute(self, inputs: DraftInputs, mode: Mode, out: Tensor | None = None) -> Drafts:
        """Draft without a CUDA graph, with static shapes and no synchronization with the host.

        Args:
            inputs: Inputs of the batch.
            mode: As for a call.
            out: Buffer for the distributions of a chain, float32 [B, K, V]; None: a new tensor.

        Returns:
            A chain or a tree for each request.
        """
        known, (depth, children, nodes, count) = DraftContext(inputs.states, inputs.tokens), self.shape
        if self.with_head_inputs is not None:
            known = self.with_head_inputs(known)
        if children > 1:
            temperature = None if mode == "greedy" else inputs.temperature
            return borrow_nodes(self.parallel.draft_tree(known, temperature, nodes, children, depth=depth), count)
        rows, whole = len(inputs.tokens), None
        parts = list(self.parallel.parts(rows, depth))
        if len(parts) == 1:
            return self._chain(known, inputs, mode, out)
        if mode != "greedy":
            shape = rows, depth, self.parallel.vocab_size
            whole = torch.empty(shape, device=inputs.states.device) if out is None else out
        chains = []
        for part in parts:
            probs = None if whole is None else whole[part]
            chains.append(self._chain(known.of_rows(part), inputs.of_rows(part), mode, probs)._replace(probs=None))
        return concat_requests(chains)._replace(probs=whole)

    def _chain(self, known: DraftContext, inputs: DraftInputs, mode: Mode, out: Tensor | None) -> Draft:
        """Draft chains, see `compute`."""
        depth, copying = self.shape.depth, inputs.copying()
        draft_chain = self.draft_one if len(inputs.tokens) == 1 else self.parallel.draft
        if mode == "greedy":
            return draft_chain(known, None, None, depth, mode, copying)
        noise = counter_uniforms(inputs.seeds, inputs.positions, depth)
        draft = draft_chain(known, inputs.temperature, noise, depth, mode, copying)
        assert draft.probs is not None
        # SGLang's kernel rejects a draft token whose probability rounding has put above 1.
        return draft._replace(probs=torch.clamp_max(draft.probs, 1.0, out=out))

    def prepare(self, runner: Any, states: Tensor, graphs: dict[str, float]) -> None:
        """Capture drafts for the batch sizes of the target's graphs; on a CPU, compile drafting for one request.

        Args:
            runner: SGLang's ``ModelRunner`` of the target.
            states: Known states of a request, [s + 1, d]; their values are not used.
            graphs: Memory of CUDA graphs in GiB, by SGLang's names; that of the drafts is added.
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

    def draft_dummy(self, states: Tensor) -> None:
        """Draft for dummy requests with these states [B, s + 1, d], to time it."""
        tokens = torch.zeros(states.shape[:2], dtype=torch.int64, device=states.device)
        key = tokens[:, 0]
        self.compute(DraftInputs(states, tokens, key.float(), key, key, *self._empty_copied(tokens)), "greedy")

    def compile_for_one(self, states: Tensor) -> None:
        """Compile chain drafting for a batch of one request on a CPU; states: [1, s + 1, d]."""
        if self.shape.children > 1:
            return
        self.draft_one = drafting_for_one(self.parallel)
        tokens, key = torch.zeros(states.shape[:2], dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        modes: tuple[Mode, ...] = ("greedy", "sampled")
        for mode in modes:
            self.compute(DraftInputs(states, tokens, torch.ones(1), key, key, *self._empty_copied(tokens)), mode)

    def capture(self, sizes: Sequence[int], states: Tensor, capture_graph: Recorder) -> None:
        """Capture drafting in CUDA graphs.

        The graphs of all sizes write their distributions into one buffer, because graphs cannot share output memory.

        Args:
            sizes: Batch sizes.
            states: Known states [max(sizes), s + 1, d], of the parallel part's dtype and device.
            capture_graph: Captures a function.
        """
        rows, device = len(states), states.device
        tokens = torch.zeros(states.shape[:2], dtype=torch.int64, device=device)
        seeds, positions = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))
        temperature = torch.ones(rows, device=device)
        self.buffers = DraftInputs(states, tokens, temperature, seeds, positions, *self._empty_copied(tokens))
        probs = None
        if self.shape.children == 1:
            probs = torch.zeros(rows, self.shape.depth, self.parallel.vocab_size, device=device)
        modes: tuple[Mode, ...] = ("greedy", "mixed")
        for size in sorted(sizes, reverse=True):  # the largest first: the smaller ones fit into its memory
            inputs = self.buffers.of_rows(slice(size))
            for mode in modes:
                out = None if probs is None else probs[:size]
                self.graphs[size, mode] = capture_graph(partial(self.compute, inputs, mode, out))
        self.sizes = sorted(sizes)

    def _empty_copied(self, tokens: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Return tokens to copy of weight 0 for the rows of tokens [B, s + 1]; None without prompt lookup."""
        if not self.copies:
            return None, None
        chances = torch.zeros(len(tokens), self.shape.depth, device=tokens.device)
        return chances.long(), chances


def _captured(mode: Mode) -> Mode:
    """Return the mode of the graph to run: "mixed" graphs also serve batches where every request is sampled."""
    return "greedy" if mode == "greedy" else "mixed"


def _first(drafts: Drafts, rows: int) -> Drafts:
    """Return the drafts of the first rows, without the padding of a graph."""
    if isinstance(drafts, TreeDraft):
        return TreeDraft(*(each[:rows] for each in drafts))
    return Draft(*(None if each is None else each[:rows] for each in drafts))  # type: ignore[arg-type]
