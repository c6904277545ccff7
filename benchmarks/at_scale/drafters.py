"""What drafts take, computed as `benchmarks.at_scale.step` computes steps, the way that the adapters draft.

Serial layers are shared out over the ranks, their projection is not; every pass draws from gathered logits, of states
of the first rank.  A window is whole on every rank.  Copies and n-grams are found on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan

from benchmarks.at_scale.step import Batch, Machine, Target, layers, logits
from benchmarks.draft_bytes import BYTES, Shape

FEATURES = 64  # of what a component adds to a position's state (`mtpc.parallel.config.ParallelConfig`)
KERNELS = {1: 84, 4: 186}  # of a sampled window's draft by components: independent heads, an HMM


@dataclass(frozen=True)
class Drafter:
    """Drafts that cost nothing but the host's time, as copies do.

    rows: of the output head that are drafted from; None: all.
    """

    name: str
    drafts: int
    host: float = 0.0
    rows: int | None = None
    depth: int = 0  # draft layers
    passes: int | None = None  # through them; None: one for each draft
    positions: int = 0  # of the window behind them
    blocks: int = 5
    rank: int = 1

    @property
    def steps(self) -> int:
        """Passes through the draft layers."""
        return self.drafts if self.passes is None else self.passes

    def heads(self, shape: Shape) -> int:
        """Bytes of a window: of each position a layer that halves, residual ones, and what components add."""
        added = 0 if self.rank == 1 else FEATURES * (1 + self.rank)
        return BYTES * self.positions * shape.hidden * ((2 + self.blocks) * shape.hidden + added)

    def kept(self, shape: Shape, batch: Batch) -> float:
        """Bytes on each rank; keys and values are the target's to count (`Target.kept`)."""
        if not self.depth:
            return 0.0
        copied = 0 if self.rows is None else self.rows * shape.row
        autoregressive = 2 * shape.hidden * shape.row + (self.depth * shape.block + copied) / batch.ranks
        return autoregressive + self.heads(shape)

    def seconds(self, machine: Machine, target: Target, batch: Batch) -> float:
        """Of a step's drafts for all requests."""
        shape, total = target.shape, self.host
        rows = min(self.rows or shape.vocab, shape.vocab)
        for number in range(self.steps if self.depth else 0):
            tokens = batch.requests * (1 + (self.drafts if number == 0 else 0))  # first all that was verified
            total += machine.draft_step + machine.product(2 * shape.hidden * shape.row, tokens)
            total += layers(machine, shape, self.depth, tokens, batch)
            total += machine.all_gather(batch.ranks * batch.requests * shape.row, batch.ranks)  # the first one's states
            total += logits(machine, shape, rows, batch.requests, batch.ranks)
        if self.positions:
            states = batch.requests * self.positions
            total += machine.kernel * KERNELS[self.rank] + machine.product(self.heads(shape), batch.requests)
            total += logits(machine, shape, rows, states * self.rank, batch.ranks, drawn=states)
        return total


def break_even(machine: Machine, target: Target, drafter: Drafter, batch: Batch) -> float:
    """A step with its drafts over one without: the tokens that a step must say for nothing to be lost.

    NaN where weights and caches do not fit into the memory.
    """
    kept = target.kept(batch, drafter.depth) + drafter.kept(target.shape, batch)
    if kept > machine.memory:
        return nan
    drafted = target.step(machine, batch, drafter.drafts) + drafter.seconds(machine, target, batch)
    return drafted / target.step(machine, batch)


LANGUAGE, LANGUAGES = 8192, 32768  # tokens of one language's draft vocabulary, and of four that share none
FASTMTP = Drafter("FastMTP", 3, depth=1)
GUMIHO = Drafter("Gumiho", 7, depth=2, passes=2, positions=5)
JOINT = replace(GUMIHO, name="Gumiho, joint (HMM)", rank=4)
EAGLE = Drafter("EAGLE-like", 7, depth=2)
COPYING = Drafter("prompt lookup", 10, host=0.44e-3)
NGRAM = Drafter("the engine's n-gram", 5)
DRAFTERS = (
    FASTMTP,
    replace(FASTMTP, name=f"FastMTP, {LANGUAGES:,} tokens", rows=LANGUAGES),
    replace(FASTMTP, name=f"FastMTP, {LANGUAGE:,} tokens", rows=LANGUAGE),
    GUMIHO,
    replace(GUMIHO, name=f"Gumiho, {LANGUAGES:,} tokens", rows=LANGUAGES),
    JOINT,
    replace(JOINT, name=f"{JOINT.name}, {LANGUAGES:,} tokens", rows=LANGUAGES),
    EAGLE,
    replace(EAGLE, name=f"{EAGLE.name}, {LANGUAGES:,} tokens", rows=LANGUAGES),
    COPYING,
    NGRAM,
)
