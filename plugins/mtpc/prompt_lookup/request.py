"""Prompt lookup of one request on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch

from mtpc.prompt_lookup.calibration import Calibration
from mtpc.prompt_lookup.match import History
from mtpc.prompt_lookup.mixture import Copied, mixture_weight
from mtpc.prompt_lookup.table import CopyTable


class Proposal(NamedTuple):
    """Tokens that prompt lookup proposes for one request.

    Attributes:
        tokens: Proposed tokens.
        chances: Probability that copying continues to each of them; see `mtpc.prompt_lookup.mixture.Copied`.
    """

    tokens: list[int]
    chances: list[float]

    @classmethod
    def empty(cls, count: int) -> Self:
        """Return a proposal of this many tokens with probability 0."""
        return cls([0] * count, [0.0] * count)

    def limited(self, count: int) -> Self:
        """Return a proposal of as many tokens, those after the first ``count`` with probability 0."""
        return self._replace(chances=[*self.chances[:count], *[0.0] * len(self.chances[count:])])


def batch_proposals(proposals: Iterable[Proposal], count: int) -> Copied:
    """Return the proposals of a batch with their mixture weights.

    Args:
        proposals: Proposal of each request, of at least ``count`` tokens.
        count: Tokens to take of each.

    Returns:
        Tokens and weights in the host's memory, [B, count].
    """
    first = [(each.tokens[:count], [mixture_weight(chance) for chance in each.chances[:count]]) for each in proposals]
    tokens, weights = zip(*first, strict=True)
    arrays = np.array(tokens, dtype=np.int64), np.array(weights, dtype=np.float32)
    return Copied(*map(torch.from_numpy, arrays))


class CopyRequest:
    """A request's growing text, and the calibration of copying probabilities in it.

    In each step, `append` the emitted tokens, then `propose`.

    Attributes:
        table: Probabilities by length of the match.
        calibration: Correction of these in this request.

    Args:
        table: Probabilities by length of the match.
        prompt: Token ids of the prompt.
        vocab_size: V of the target. Larger ids, as engines put in the place of images, are never proposed.
        before: Earlier outputs that may be copied as well; see `mtpc.prompt_lookup.store`.
    """

    def __init__(self, table: CopyTable, prompt: Sequence[int], vocab_size: int, before: Sequence[int] = ()) -> None:
        self.table, self.calibration, self._vocab_size = table, Calibration(), vocab_size
        self._history = History([*before, *prompt])
        self._prompt_start, self._output_start = len(before), len(before) + len(prompt)
        self._proposed: Proposal | None = None

    @property
    def text(self) -> list[int]:
        """Prompt and output."""
        return self._history.tokens[self._prompt_start :]

    @property
    def output(self) -> list[int]:
        """Tokens after the prompt."""
        return self._history.tokens[self._output_start :]

    def append(self, tokens: Sequence[int]) -> None:
        """Append emitted tokens and learn from the last proposal."""
        if self._proposed is not None:
            self.calibration.learn(tokens, *self._proposed)
            self._proposed = None
        self._history.append(tokens)

    def propose(self, count: int) -> Proposal:
        """Return a proposal of ``count`` tokens."""
        match = self._history.longest_match(self.table.longest)
        if not match.length:
            return Proposal.empty(count)
        tokens = self._history.continuation(match, count)
        chances = self.calibration.corrected(self.table.after_match(match.length, count))
        end = next((place for place, token in enumerate(tokens) if not 0 <= token < self._vocab_size), count)
        tokens[end:], chances[end:] = Proposal.empty(count - end)  # from a separator or another id that is no token on
        self._proposed = Proposal(tokens, chances)
        return self._proposed
