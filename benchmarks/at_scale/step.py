"""What a step of a target takes on a machine, computed: bytes, operations, and what each part takes beside them.

Weights are bfloat16, so that a matrix of so many bytes takes as many operations for each token.  A product takes the
root of the sum of squares of what reading and computing take alone: the larger of the two, but for where they are
alike, and none of both hides the other whole (`benchmarks.at_scale.checks`).
"""

from __future__ import annotations

from math import hypot, inf
from typing import NamedTuple

import numpy as np

from benchmarks.draft_bytes import BYTES, Shape

FLOAT = 4  # bytes of a logit once it is sampled from
PASSES = 3  # over logits until a token is drawn: two for a softmax, one to draw

# Seconds of an all-reduce of so many bytes among 2, 4 and 8 H100s, as sgl-project/sglang#2904 measured its kernel.
REDUCED_BYTES = FLOAT * np.array([4096, 32768, 262144, 524288, 1048576])
REDUCED = {
    2: np.array([3.9e-6, 4.5e-6, 7.9e-6, 12.5e-6, 19.9e-6]),
    4: np.array([3.7e-6, 4.8e-6, 13.9e-6, 20.2e-6, 31.1e-6]),
    8: np.array([5.7e-6, 7.8e-6, 16.7e-6, 22.1e-6, 33.8e-6]),
}
HOP = 2e-6  # from a rank to the next, where large sums go around a ring


class Machine(NamedTuple):
    """Bytes and operations a second, as reached; and seconds that are no reading or computing.

    layer: of a decoder layer, between its kernels.  step: of a step, on the host.  request: of each request in it.
    drafting: of a step with drafts, beside one without.  draft_step: of each pass through a drafter's layers.  kernel:
    of each of a window's kernels.  memory: bytes for weights and caches.  link: bytes a second to other ranks.
    reducing: times what was measured for all-reduces.
    """

    name: str
    bandwidth: float
    peak: float
    layer: float = 0.0
    step: float = 0.0
    request: float = 0.0
    drafting: float = 0.0
    draft_step: float = 0.0
    kernel: float = 0.0
    memory: float = inf
    link: float = inf
    reducing: float = 1.0

    def product(self, weights: float, tokens: int) -> float:
        """Of so many bytes of weights with the states of so many tokens."""
        return hypot(weights / self.bandwidth, weights * tokens / self.peak)

    def all_reduce(self, size: float, ranks: int) -> float:
        """Of so many bytes on each rank: as measured, straight beyond that, or around a ring where that is faster."""
        if ranks == 1:
            return 0.0
        sizes, seconds = REDUCED_BYTES, REDUCED[ranks]
        slope = float(seconds[-1] - seconds[-2]) / float(sizes[-1] - sizes[-2])
        straight = float(np.interp(size, sizes, seconds)) + max(0.0, size - float(sizes[-1])) * slope
        ring = 2 * (ranks - 1) * (HOP + size / ranks / self.link)
        return self.reducing * min(straight, ring)

    def all_gather(self, size: float, ranks: int) -> float:
        """Of so many bytes of all ranks together."""
        if ranks == 1:
            return 0.0
        return self.reducing * (float(REDUCED[ranks][0]) + size * (ranks - 1) / ranks / self.link)


class Batch(NamedTuple):
    """Requests of a step, the tokens that each has behind it, and the ranks that the target is shared out over."""

    requests: int
    context: int = 1024
    ranks: int = 1


class Target(NamedTuple):
    """A dense decoder of layers of one shape."""

    name: str
    shape: Shape
    layers: int

    @property
    def weights(self) -> int:
        """Bytes that a step reads, of the embedding but a row for each token."""
        return self.layers * self.shape.block + self.shape.vocab * self.shape.row

    def kept(self, batch: Batch, layers: int = 0) -> float:
        """Bytes on each rank of weights, embedding and keys and values, with so many layers of a drafter."""
        cached = 2 * BYTES * self.shape.keys * batch.requests * batch.context * (self.layers + layers)
        return (self.weights + self.shape.vocab * self.shape.row + cached) / batch.ranks

    def step(self, machine: Machine, batch: Batch, drafts: int = 0) -> float:
        """Seconds of a step that reads each request's pending token and so many drafts; drafting apart."""
        tokens = batch.requests * (1 + drafts)
        host = machine.step + machine.request * batch.requests + (machine.drafting if drafts else 0.0)
        through = layers(machine, self.shape, self.layers, tokens, batch)
        return host + through + logits(machine, self.shape, self.shape.vocab, tokens, batch.ranks)


def layers(machine: Machine, shape: Shape, count: int, tokens: int, batch: Batch) -> float:
    """Seconds of so many decoder layers and the embedding before them, shared out over ranks."""
    cached = 2 * BYTES * shape.keys * batch.requests * batch.context
    scores = 4 * shape.attended * tokens * batch.context  # operations: scores, and sums of values
    attention = hypot(cached / machine.bandwidth, scores / machine.peak) / batch.ranks
    reduced = machine.all_reduce(tokens * shape.row, batch.ranks)
    product = machine.product(shape.block / batch.ranks, tokens)
    return count * (product + attention + 2 * reduced + machine.layer) + reduced


def logits(machine: Machine, shape: Shape, rows: int, states: int, ranks: int, drawn: int | None = None) -> float:
    """Seconds until a token is drawn by so many rows of the head, which ranks share: logits, gathered, and passes.

    drawn: of how many states' distributions over all tokens are written, where that is not all of them.
    """
    product = machine.product(rows * shape.row / ranks, states)
    read = FLOAT * (PASSES * states * rows + (states if drawn is None else drawn) * shape.vocab)
    return product + machine.all_gather(BYTES * states * rows, ranks) + read / machine.bandwidth
