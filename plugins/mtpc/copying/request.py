"""What one request has said and how well copying has done in it, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mtpc.copying.match import continuation, longest_match
from mtpc.copying.table import CopyTable

RATE, FARTHEST = 0.3, 3.0  # of a request's shift: a step of its logit, and how far it may go


class Proposal(NamedTuple):
    """tokens: int64 [m], what would be copied next.  chances: float32 [m], see `mtpc.copying.mixture.Copied`."""

    tokens: np.ndarray
    chances: np.ndarray


class CopyRequest:
    """The text of a request, which only grows, and a shift of the table's logits that follows what came true in it."""

    def __init__(self, table: CopyTable, prompt: Sequence[int]) -> None:
        self.table, self.shift = table, 0.0
        self._tokens = np.array(prompt, dtype=np.int32)
        self._length = len(prompt)
        self._proposed: Proposal | None = None

    @property
    def text(self) -> np.ndarray:
        """int32 [T]."""
        return self._tokens[: self._length]

    def append(self, tokens: Sequence[int]) -> None:
        """What the target has said since the last proposal."""
        self._learn(tokens)
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
            self._proposed = Proposal(
                continuation(self.text, match, count), self.table.along(match.length, count, self.shift)
            )
        else:
            self._proposed = Proposal(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.float32))
        return self._proposed

    def _learn(self, tokens: Sequence[int]) -> None:
        """Move the shift by what came of the last proposal: a step of logistic regression for each token of it."""
        if self._proposed is None:
            return
        for token, proposed, chance in zip(tokens, *self._proposed, strict=False):
            if chance == 0:
                break
            right = bool(token == proposed)
            self.shift = min(max(self.shift + RATE * (right - float(chance)), -FARTHEST), FARTHEST)
            if not right:
                break
        self._proposed = None
