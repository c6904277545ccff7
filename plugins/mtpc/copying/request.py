"""What one request has said and how well copying has done in it, on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from mtpc.copying.match import continuation, longest_match
from mtpc.copying.shift import Shift
from mtpc.copying.table import CopyTable


class Proposal(NamedTuple):
    """tokens: int64 [m], what would be copied next.  chances: float32 [m], see `mtpc.copying.mixture.Copied`."""

    tokens: np.ndarray
    chances: np.ndarray

    @classmethod
    def none(cls, count: int) -> Self:
        """So many tokens without a chance."""
        return cls(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.float32))

    @classmethod
    def stacked(cls, proposals: Iterable[Self], count: int) -> Self:
        """The first so many tokens of each row of a batch, [B, count] both."""
        tokens, chances = zip(*proposals, strict=True)
        return cls(np.stack(tokens)[:, :count], np.stack(chances)[:, :count])


class CopyRequest:
    """The text of a request, which only grows, and how the table's chances are corrected in it."""

    def __init__(self, table: CopyTable, prompt: Sequence[int]) -> None:
        self.table, self.shift = table, Shift()
        self._tokens = np.array(prompt, dtype=np.int32)
        self._length = len(prompt)
        self._proposed: Proposal | None = None

    @property
    def text(self) -> np.ndarray:
        """int32 [T]."""
        return self._tokens[: self._length]

    def append(self, tokens: Sequence[int]) -> None:
        """What the target has said since the last proposal."""
        if self._proposed is not None:
            self.shift.learn(tokens, *map(np.ndarray.tolist, self._proposed))
            self._proposed = None
        end = self._length + len(tokens)
        if end > len(self._tokens):
            grown = np.empty(2 * end, dtype=np.int32)
            grown[: self._length] = self.text
            self._tokens = grown
        self._tokens[self._length : end] = tokens
        self._length = end

    def propose(self, count: int) -> Proposal:
        """So many tokens that the text would go on with."""
        match = longest_match(self.text, self.table.longest)
        if match.length:
            chances = self.shift.corrected(self.table.along(match.length, count))
            self._proposed = Proposal(continuation(self.text, match, count), np.array(chances, dtype=np.float32))
        else:
            self._proposed = Proposal.none(count)
        return self._proposed
