"""What one request has said and how well copying has done in it, on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch

from mtpc.prompt_lookup.calibration import Shift
from mtpc.prompt_lookup.match import History
from mtpc.prompt_lookup.mixture import Copied, doubted
from mtpc.prompt_lookup.store import BREAK
from mtpc.prompt_lookup.table import CopyTable


class Proposal(NamedTuple):
    """tokens: what would be copied next.  chances: of each, as many; see `mtpc.prompt_lookup.mixture.Copied`."""

    tokens: list[int]
    chances: list[float]

    @classmethod
    def none(cls, count: int) -> Self:
        """So many tokens without a chance."""
        return cls([0] * count, [0.0] * count)


def beside_drafter(proposals: Iterable[Proposal], count: int) -> Copied:
    """The first so many tokens of each row, and what they weigh beside a drafter."""
    first = [(each.tokens[:count], [doubted(chance) for chance in each.chances[:count]]) for each in proposals]
    tokens, weights = zip(*first, strict=True)
    arrays = np.array(tokens, dtype=np.int64), np.array(weights, dtype=np.float32)
    return Copied(*map(torch.from_numpy, arrays))


class CopyRequest:
    """The text of a request, which only grows, and how the table's chances are corrected in it.

    before: what stands before the prompt and may be copied as well, see `mtpc.prompt_lookup.store`.
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
