"""What one request has said and how well copying has done in it, on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple, Self

import numpy as np

from mtpc.copying.match import History
from mtpc.copying.mixture import doubted
from mtpc.copying.shift import Shift
from mtpc.copying.store import BREAK
from mtpc.copying.table import CopyTable
from mtpc.copying.trust import Trust

FOLLOWS, FORGETS = 0.03, 0.02  # of how often the drafter's tokens are accepted: after each of them, and in rest


class Proposal(NamedTuple):
    """tokens: what would be copied next.  chances: of each, as many; see `mtpc.copying.mixture.Copied`."""

    tokens: list[int]
    chances: list[float]

    @classmethod
    def none(cls, count: int) -> Self:
        """So many tokens without a chance."""
        return cls([0] * count, [0.0] * count)


def beside_drafter(proposals: Iterable[Proposal], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first so many tokens of each row, int64 [B, count], and what they weigh beside a drafter, float32."""
    first = [(each.tokens[:count], [doubted(chance) for chance in each.chances[:count]]) for each in proposals]
    tokens, weights = zip(*first, strict=True)
    return np.array(tokens, dtype=np.int64), np.array(weights, dtype=np.float32)


class CopyRequest:
    """The text of a request, which only grows, and how the table's chances are corrected in it.

    before: what stands before the prompt and may be copied as well, see `mtpc.copying.store`.
    """

    def __init__(self, table: CopyTable, prompt: Sequence[int], before: Sequence[int] = ()) -> None:
        self.table, self.shift = table, Shift()
        self._history = History([*before, *prompt])
        self._begins, self._answer = len(before), len(before) + len(prompt)
        self._proposed: Proposal | None = None

    @property
    def text(self) -> list[int]:
        """Prompt and output."""
        return self._history.tokens[self._begins :]

    @property
    def answer(self) -> list[int]:
        """What was said after the prompt."""
        return self._history.tokens[self._answer :]

    @property
    def said(self) -> int:
        """How many tokens were said after the prompt."""
        return len(self._history.tokens) - self._answer

    def append(self, tokens: Sequence[int]) -> None:
        """What the target has said since the last proposal."""
        if self._proposed is not None:
            self.shift.learn(tokens, *self._proposed)
            self._proposed = None
        self._history.append(tokens)

    def propose(self, count: int) -> Proposal:
        """So many tokens that the text would go on with."""
        match = self._history.longest_match(self.table.longest)
        if not match.length:
            return Proposal.none(count)
        tokens = self._history.continuation(match, count)
        chances = self.shift.corrected(self.table.along(match.length, count))
        if match.start < self._begins and BREAK in tokens:  # in answers before this one
            end = tokens.index(BREAK)
            tokens[end:], chances[end:] = Proposal.none(count - end)
        self._proposed = Proposal(tokens, chances)
        return self._proposed


class Request:
    """A request: its text, and what becomes of the drafter's drafts in it.

    tenant, before: whose it is, and what of the same tenant may be copied, see `mtpc.copying.store`.  sure: corrects
    the drafter's own probability of the tokens that it drafts.  typical: how often one of them is accepted, to judge by
    before it drafts; while it does not draft, that goes back to ``at_first``.  expected: who learns what becomes of the
    draft under way, and how many accepted tokens each of them has foretold.  missed: what the target has said while
    nobody looked, see `mtpc.copying.rest`.
    """

    def __init__(
        self,
        table: CopyTable,
        prompt: Sequence[int],
        tenant: str | None = None,
        before: Sequence[int] = (),
        greedy: bool = True,
    ) -> None:
        self.copy, self.tenant = CopyRequest(table, prompt, before), tenant
        self.at_first = table.typical[not greedy]
        self.sure, self.typical = Shift(), self.at_first
        self.expected: list[tuple[Trust, float]] = []
        self.missed: list[int] = []
        self._drafted: tuple[list[int], list[float]] = [], []

    def foreseen(self, copied: Sequence[float], own: int) -> tuple[list[float], list[float]]:
        """Chances that tokens are reached: of so many of the drafter's own, before it drafts, and of copies alone.

        copied: of what would be copied, each after those before.
        """
        drafted = [max(chance, self.typical) for chance in copied[:own]]
        return list(accumulate(drafted, mul)), list(accumulate(copied, mul)) if copied[0] else []

    def drafted(self, tokens: list[int], chances: list[float]) -> None:
        """Remember what the drafter drafted, with corrected chances."""
        self._drafted = tokens, chances

    def said(self, tokens: Sequence[int]) -> None:
        """What the target has said since."""
        drafted, chances = self._drafted
        self.sure.learn(tokens, drafted, chances)
        for token, foretold in zip(tokens, drafted, strict=False):
            self.typical += FOLLOWS * ((token == foretold) - self.typical)
            if token != foretold:
                break
        if not drafted:
            self.typical += FORGETS * (self.at_first - self.typical)
        self._drafted = [], []
        self.copy.append([*self.missed, *tokens] if self.missed else tokens)
        self.missed = []
