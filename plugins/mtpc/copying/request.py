"""What one request has said and how well copying has done in it, on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from mtpc.copying.match import continuation, longest_match
from mtpc.copying.mixture import doubted
from mtpc.copying.shift import Shift
from mtpc.copying.store import BREAK
from mtpc.copying.table import CopyTable
from mtpc.copying.trust import Trust

FOLLOWS, FORGETS = 0.1, 0.02  # of how often the drafter's tokens are accepted: after each of them, and while it rests


class Proposal(NamedTuple):
    """tokens: int64 [m], what would be copied next.  chances: float32 [m], see `mtpc.copying.mixture.Copied`."""

    tokens: np.ndarray
    chances: np.ndarray

    @classmethod
    def none(cls, count: int) -> Self:
        """So many tokens without a chance."""
        return cls(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.float32))

    @classmethod
    def beside_drafter(cls, proposals: Iterable[Self], count: int) -> Self:
        """The first so many tokens of each row of a batch, with what they weigh beside a drafter, [B, count] both."""
        tokens, chances = zip(*proposals, strict=True)
        return cls(np.stack(tokens)[:, :count], doubted(np.stack(chances)[:, :count]))


NOTHING = np.empty(0, dtype=np.int32)


class CopyRequest:
    """The text of a request, which only grows, and how the table's chances are corrected in it.

    before: int32 [n], what stands before the prompt and may be copied as well, see `mtpc.copying.store`.
    """

    def __init__(self, table: CopyTable, prompt: Sequence[int], before: np.ndarray = NOTHING) -> None:
        self.table, self.shift = table, Shift()
        self._tokens = np.concatenate([before, np.array(prompt, dtype=np.int32)])
        self._begins, self._answer, self._length = len(before), len(self._tokens), len(self._tokens)
        self._proposed: Proposal | None = None

    @property
    def text(self) -> np.ndarray:
        """Prompt and output, int32 [T]."""
        return self._tokens[self._begins : self._length]

    @property
    def answer(self) -> np.ndarray:
        """What was said after the prompt, int32 [n]."""
        return self._tokens[self._answer : self._length]

    def append(self, tokens: Sequence[int]) -> None:
        """What the target has said since the last proposal."""
        if self._proposed is not None:
            self.shift.learn(tokens, *map(np.ndarray.tolist, self._proposed))
            self._proposed = None
        end = self._length + len(tokens)
        if end > len(self._tokens):
            grown = np.empty(2 * end, dtype=np.int32)
            grown[: self._length] = self._tokens[: self._length]
            self._tokens = grown
        self._tokens[self._length : end] = tokens
        self._length = end

    def propose(self, count: int) -> Proposal:
        """So many tokens that the text would go on with."""
        text = self._tokens[: self._length]
        match = longest_match(text, self.table.longest)
        if match.length:
            tokens = continuation(text, match, count)
            chances = np.array(self.shift.corrected(self.table.along(match.length, count)), dtype=np.float32)
            if match.start < self._begins:  # in answers before this one, between which there is a break
                ended = np.logical_or.accumulate(tokens == BREAK)
                tokens, chances = np.where(ended, 0, tokens), np.where(ended, np.float32(0.0), chances)
            self._proposed = Proposal(tokens, chances)
        else:
            self._proposed = Proposal.none(count)
        return self._proposed


class Request:
    """A request: its text, and what becomes of the drafter's drafts in it.

    tenant, before: whose it is, and what of the same tenant may be copied, see `mtpc.copying.store`.  sure: corrects
    the drafter's own probability of the tokens that it drafts.  typical: how often one of them is accepted, to judge by
    before it drafts; while it does not draft, that goes back to ``at_first``.  expected: who learns what becomes of the
    draft under way, and how many accepted tokens it was foretold to bring; None: nobody.  missed: what the target has
    said while nobody looked, see `mtpc.copying.rest`.
    """

    def __init__(
        self,
        table: CopyTable,
        prompt: Sequence[int],
        tenant: str | None = None,
        before: np.ndarray = NOTHING,
        greedy: bool = True,
    ) -> None:
        self.copy, self.tenant = CopyRequest(table, prompt, before), tenant
        self.at_first = table.typical[not greedy]
        self.sure, self.typical = Shift(), self.at_first
        self.expected: tuple[Trust, float] | None = None
        self.missed: list[int] = []
        self._drafted: tuple[list[int], list[float]] = [], []

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
