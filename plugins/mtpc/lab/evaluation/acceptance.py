"""Expected acceptance along text that the target wrote, in closed form.

Rejection sampling emits a token x that equals the draft's with probability min(p, q)(x), out of p(x)
in all.  So, given the text that was emitted, draft i was accepted with probability min(1, q/p)(x_i),
independently of the rest: acceptance along a given text is a Markov chain over positions, and the
number of steps that speculative decoding takes for it is found by summing over the chain instead of
by running it (Leviathan et al. 2022, section 3; the chain is this project's).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.verify import Rates, rates_from_marginal


class ExpectedCounts(NamedTuple):
    """Expected numbers, which add up over texts: of steps, float64 [], and of each draft's acceptances, float64 [K].

    positions: float64 [], where a step could start.  there: float64 [K], acceptances if one started at each of them.
    right: float64 [K], the same if all drafts before were accepted.
    """

    steps: Tensor
    accepted: Tensor
    positions: Tensor
    accepted_anywhere: Tensor
    accepted_given_text: Tensor

    def plus(self, other: ExpectedCounts) -> ExpectedCounts:
        """The numbers of both texts."""
        return ExpectedCounts(*map(torch.add, self, other))

    @property
    def rates(self) -> Rates:
        """Acceptance; zero where there is no step."""
        return rates_from_marginal((self.accepted / self.steps.clamp_min(torch.finfo().tiny)).tolist())

    @property
    def uniform_length(self) -> float:
        """Tokens of a step that starts at any position, all weighing the same.

        What accepts at least as much at each has no smaller one; its `rates` may, as it visits other positions.
        """
        return 1.0 + float(self.accepted_anywhere.sum() / self.positions.clamp_min(1))

    @property
    def accuracy(self) -> list[float]:
        """Of each draft, given everything before it right, all positions weighing the same.

        At temperature 0 that of the most probable token, as in the Gumiho paper's figure 6.
        """
        return (self.accepted_given_text / self.positions.clamp_min(1)).tolist()

    def to_json(self) -> dict[str, Any]:
        """Rounded for a report."""
        anywhere, accuracy = round(self.uniform_length, 4), [round(rate, 4) for rate in self.accuracy]
        return self.rates.to_json() | {"length_anywhere": anywhere, "accuracy_given_the_text": accuracy}


def expected_counts(accept: Tensor) -> ExpectedCounts:
    """The numbers of texts of equal length.

    accept: float64 [S, L, K]; accept[s, t, i] is the probability that, in a step that starts after
    position t of text s, draft i + 1 is accepted when those before it were.
    """
    texts, length, drafts = accept.shape
    marginal = accept.cumprod(-1)  # [S, L, K]
    exactly = torch.cat([torch.ones_like(marginal[..., :1]), marginal], -1)
    exactly[..., :-1] -= marginal  # [S, L, K + 1]: probability of exactly k accepted drafts
    visits = torch.zeros(texts, length + drafts + 1, dtype=accept.dtype)
    visits[:, 0] = 1.0  # expected number of steps that start at a position
    for start in range(length):
        visits[:, start + 1 : start + drafts + 2] += visits[:, start : start + 1] * exactly[:, start]
    weights = visits[:, :length, None]
    positions = torch.tensor(texts * length, dtype=accept.dtype)
    there, right = marginal.sum((0, 1)), accept.sum((0, 1))
    return ExpectedCounts(weights.sum(), (weights * marginal).sum((0, 1)), positions, there, right)


def counts_along(accept: Iterable[Tensor]) -> ExpectedCounts:
    """The numbers of texts of any lengths, at least one: float64 [L, K] of each; L is 0 where no step has room."""
    by_length: dict[int, list[Tensor]] = {}
    for text in accept:
        by_length.setdefault(len(text), []).append(text)
    parts = [expected_counts(torch.stack(texts)) for texts in by_length.values()]
    return reduce(ExpectedCounts.plus, parts)


def decode_acceptance(accept: Tensor) -> Rates:
    """Acceptance of speculative decoding along texts, a position weighed by how often a step starts there.

    accept: as `expected_counts`.
    """
    return expected_counts(accept).rates
