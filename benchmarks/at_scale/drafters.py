"""Drafting times by the model of `benchmarks.at_scale.step`, for drafters as this project's adapters run them.

The layers of an autoregressive part are sharded over the ranks, except for their input projection.  Each draft step
gathers the states of the first rank and the logits of all ranks.  Every rank has a full copy of a parallel part.
Prompt lookup and the n-gram drafter run on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan

from benchmarks.at_scale.step import Batch, Machine, Target, layers, logits
from benchmarks.draft_bytes import BYTES, Shape

FEATURES = 64  # size of a component's features (`mtpc.parallel.config.ParallelConfig`)
KERNELS = {1: 84, 4: 186}  # of a sampled draft of a parallel part, by rank: independent heads, an HMM


@dataclass(frozen=True)
class Drafter:
    """A drafter; the defaults are those of prompt lookup, which takes only time on the host.

    Attributes:
        name: Row of the tables.
        drafts: Draft tokens, K.
        host: Seconds on the host per decoding step.
        rows: Rows of the output head that tokens are drafted from; None for all.
        depth: Draft layers of the autoregressive part.
        passes: Draft steps; None for one per draft token.
        positions: Positions of the parallel part.
        blocks: Residual blocks of each position.
        rank: Components of the parallel part's distribution.
    """

    name: str
    drafts: int
    host: float = 0.0
    rows: int | None = None
    depth: int = 0
    passes: int | None = None
    positions: int = 0
    blocks: int = 5
    rank: int = 1

    @property
    def steps(self) -> int:
        """Number of draft steps."""
        return self.drafts if self.passes is None else self.passes

    def heads(self, shape: Shape) -> int:
        """Return the bytes of the parallel part: a halving layer, residual blocks and components of each position."""
        added = 0 if self.rank == 1 else FEATURES * (1 + self.rank)
        return BYTES * self.positions * shape.hidden * ((2 + self.blocks) * shape.hidden + added)

    def kept(self, shape: Shape, batch: Batch) -> float:
        """Return the bytes on each rank without keys and values, which `Target.kept` counts."""
        if not self.depth:
            return 0.0
        copied = 0 if self.rows is None else self.rows * shape.row
        autoregressive = 2 * shape.hidden * shape.row + (self.depth * shape.block + copied) / batch.ranks
        return autoregressive + self.heads(shape)

    def seconds(self, machine: Machine, target: Target, batch: Batch) -> float:
        """Return the seconds of drafting for all requests of a decoding step."""
        shape, total = target.shape, self.host
        rows = min(self.rows or shape.vocab, shape.vocab)
        for number in range(self.steps if self.depth else 0):
            read = 1 + self.drafts if number == 0 else 1  # the first draft step reads all verified tokens
            tokens = batch.requests * read
            total += machine.draft_step + machine.product(2 * shape.hidden * shape.row, tokens)
            total += layers(machine, shape, self.depth, tokens, batch)
            gathered = batch.ranks * batch.requests * shape.row  # to get the states of the first rank
            total += machine.all_gather(gathered, batch.ranks)
            total += logits(machine, shape, rows, batch.requests, batch.ranks)
        if self.positions:
            states = batch.requests * self.positions
            total += machine.kernel * KERNELS[self.rank] + machine.product(self.heads(shape), batch.requests)
            total += logits(machine, shape, rows, states * self.rank, batch.ranks, drawn=states)
        return total


def break_even(machine: Machine, target: Target, drafter: Drafter, batch: Batch) -> float:
    """Return the time of a step with drafts over one without, which is the break-even acceptance length.

    NaN if weights and caches do not fit into the memory.
    """
    kept = target.kept(batch, drafter.depth) + drafter.kept(target.shape, batch)
    if kept > machine.memory:
        return nan
    drafted = target.step(machine, batch, drafter.drafts) + drafter.seconds(machine, target, batch)
    return drafted / target.step(machine, batch)


LANGUAGE, LANGUAGES = 8192, 32768  # tokens of one language's draft vocabulary, and of the union of four
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
