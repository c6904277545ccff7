"""Model of the time of a target's decoding step on a machine: bytes, operations and fixed costs.

Weights are bfloat16, so a product takes one operation per token and byte of its matrix.  The time of a product is the
root of the sum of squares of two times: reading the matrix, and computing.  It is close to the larger one unless both
are similar, because neither hides the other completely.  `benchmarks.at_scale.checks` compares it with measurements.
"""

from __future__ import annotations

from math import hypot, inf
from typing import NamedTuple

import numpy as np

from benchmarks.draft_bytes import BYTES, Shape

FLOAT = 4  # bytes of a logit during sampling
PASSES = 3  # over the logits until a token is sampled: two for the softmax, one for sampling

# Seconds of an all-reduce among 2, 4 and 8 H100s by its bytes, as measured in sgl-project/sglang#2904.
REDUCED_BYTES = FLOAT * np.array([4096, 32768, 262144, 524288, 1048576])
REDUCED = {
    2: np.array([3.9e-6, 4.5e-6, 7.9e-6, 12.5e-6, 19.9e-6]),
    4: np.array([3.7e-6, 4.8e-6, 13.9e-6, 20.2e-6, 31.1e-6]),
    8: np.array([5.7e-6, 7.8e-6, 16.7e-6, 22.1e-6, 33.8e-6]),
}
HOP = 2e-6  # seconds from a rank to the next one in a ring all-reduce


class Machine(NamedTuple):
    """A machine, with the rates that it reaches and with fixed costs in seconds.

    Attributes:
        name: Name of the machine.
        bandwidth: Bytes read per second.
        peak: Operations per second.
        layer: Fixed cost of a decoder layer, between its kernels.
        step: Fixed cost of a step on the host.
        request: Additional cost of each request on the host.
        drafting: Additional cost of a step with drafts.
        draft_step: Fixed cost of each draft step.
        kernel: Cost of each kernel of a parallel part.
        memory: Bytes for weights and caches.
        link: Bytes per second to other ranks.
        reducing: Factor on the measured times of all-reduces and gathers.
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
        """Return the seconds of a product of ``weights`` bytes with the states of ``tokens`` tokens."""
        return hypot(weights / self.bandwidth, weights * tokens / self.peak)

    def all_reduce(self, size: float, ranks: int) -> float:
        """Return the seconds of an all-reduce of ``size`` bytes on each rank.

        Measured times are interpolated, and extrapolated in a straight line; a ring is used where it is faster.
        """
        if ranks == 1:
            return 0.0
        sizes, seconds = REDUCED_BYTES, REDUCED[ranks]
        slope = float(seconds[-1] - seconds[-2]) / float(sizes[-1] - sizes[-2])
        straight = float(np.interp(size, sizes, seconds)) + max(0.0, size - float(sizes[-1])) * slope
        ring = 2 * (ranks - 1) * (HOP + size / ranks / self.link)
        return self.reducing * min(straight, ring)

    def all_gather(self, size: float, ranks: int) -> float:
        """Return the seconds of gathering ``size`` bytes in total from all ranks."""
        if ranks == 1:
            return 0.0
        return self.reducing * (float(REDUCED[ranks][0]) + size * (ranks - 1) / ranks / self.link)


class Batch(NamedTuple):
    """The batch of a decoding step.

    Attributes:
        requests: Number of requests.
        context: Tokens of context of each request.
        ranks: Tensor-parallel ranks of the target.
    """

    requests: int
    context: int = 1024
    ranks: int = 1


class Target(NamedTuple):
    """A dense decoder whose layers have one shape."""

    name: str
    shape: Shape
    layers: int

    @property
    def weights(self) -> int:
        """Bytes of weights that a step reads, without the embedding, of which it reads one row per token."""
        return self.layers * self.shape.block + self.shape.vocab * self.shape.row

    def kept(self, batch: Batch, layers: int = 0) -> float:
        """Return the bytes of weights, embedding, keys and values on each rank.

        Args:
            batch: The batch.
            layers: Draft layers, whose keys and values are counted as well.
        """
        cached = 2 * BYTES * self.shape.keys * batch.requests * batch.context * (self.layers + layers)
        return (self.weights + self.shape.vocab * self.shape.row + cached) / batch.ranks

    def step(self, machine: Machine, batch: Batch, drafts: int = 0) -> float:
        """Return the seconds of a step that verifies ``drafts`` draft tokens per request, without the drafting time."""
        tokens = batch.requests * (1 + drafts)
        host = machine.step + machine.request * batch.requests + (machine.drafting if drafts else 0.0)
        through = layers(machine, self.shape, self.layers, tokens, batch)
        return host + through + logits(machine, self.shape, self.shape.vocab, tokens, batch.ranks)


def layers(machine: Machine, shape: Shape, count: int, tokens: int, batch: Batch) -> float:
    """Return the seconds of ``count`` decoder layers and the embedding before them, sharded over the ranks."""
    cached = 2 * BYTES * shape.keys * batch.requests * batch.context
    scores = 4 * shape.attended * tokens * batch.context  # operations of scores and of sums of values
    attention = hypot(cached / machine.bandwidth, scores / machine.peak) / batch.ranks
    reduced = machine.all_reduce(tokens * shape.row, batch.ranks)
    product = machine.product(shape.block / batch.ranks, tokens)
    return count * (product + attention + 2 * reduced + machine.layer) + reduced


def logits(machine: Machine, shape: Shape, rows: int, states: int, ranks: int, drawn: int | None = None) -> float:
    """Return the seconds of the output head and of sampling: logits, their gathering, and passes over them.

    Args:
        machine: The machine.
        shape: Sizes of the target.
        rows: Rows of the output head, which is sharded over the ranks.
        states: Number of states whose logits are computed.
        ranks: Number of ranks.
        drawn: Number of distributions over all tokens that are written; None for one per state.
    """
    product = machine.product(rows * shape.row / ranks, states)
    read = FLOAT * (PASSES * states * rows + (states if drawn is None else drawn) * shape.vocab)
    return product + machine.all_gather(BYTES * states * rows, ranks) + read / machine.bandwidth
