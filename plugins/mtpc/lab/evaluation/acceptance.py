"""Expected acceptance along text that the target generated, in closed form.

Rejection sampling emits the draft token x with probability min(p, q)(x), out of p(x) in all. Given the emitted text,
draft token i was therefore accepted with probability min(1, q/p)(x_i), independently of the others. Acceptance along a
given text is a Markov chain over positions. Summing over the chain gives the expected number of decoding steps without
running them. Rejection sampling: Leviathan et al. 2022, section 3. The chain is this project's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.lab.evaluation.rates import Rates, rates_from_marginal


class ExpectedCounts(NamedTuple):
    """Expected counts along texts. Counts of several texts are added.

    Attributes:
        steps: Decoding steps, float64 [].
        accepted: Acceptances of each draft token, float64 [K].
        positions: Positions at which a step could start, float64 [].
        accepted_anywhere: Acceptances if one step started at each position, float64 [K].
        accepted_given_text: The same if all earlier draft tokens were accepted, float64 [K].
    """

    steps: Tensor
    accepted: Tensor
    positions: Tensor
    accepted_anywhere: Tensor
    accepted_given_text: Tensor

    def plus(self, other: ExpectedCounts) -> ExpectedCounts:
        """Return the sum of both counts."""
        return ExpectedCounts(*map(torch.add, self, other))

    @property
    def rates(self) -> Rates:
        """Acceptance rates and acceptance length; zero without steps."""
        return rates_from_marginal((self.accepted / self.steps.clamp_min(torch.finfo().tiny)).tolist())

    @property
    def uniform_length(self) -> float:
        """Acceptance length of steps that start at every position, equally weighted.

        It never falls when acceptance rises at every position. ``rates`` can fall, because steps then start at other
        positions.
        """
        return 1.0 + float(self.accepted_anywhere.sum() / self.positions.clamp_min(1))

    @property
    def accuracy(self) -> list[float]:
        """Conditional acceptance rate of each draft token, with all positions equally weighted.

        At temperature 0 it is the accuracy of the most probable token, as in the Gumiho paper's figure 6.
        """
        return (self.accepted_given_text / self.positions.clamp_min(1)).tolist()

    def to_json(self) -> dict[str, Any]:
        """Return the figures of a report, rounded to four digits."""
        anywhere, accuracy = round(self.uniform_length, 4), [round(rate, 4) for rate in self.accuracy]
        return self.rates.to_json() | {"length_anywhere": anywhere, "accuracy_given_the_text": accuracy}


def expected_counts(accept: Tensor) -> ExpectedCounts:
    """Return the expected counts of texts of equal length.

    Args:
        accept: Conditional acceptance probabilities, float64 [S, L, K]. accept[s, t, i] belongs to draft token i + 1 of
            a step after position t of text s. It is conditional on the acceptance of the earlier draft tokens.
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
    """Return the expected counts of texts of any lengths.

    Args:
        accept: Conditional acceptance probabilities of each text, float64 [L, K], at least one text. L is 0 for a text
            that is too short for a step.
    """
    by_length: dict[int, list[Tensor]] = {}
    for text in accept:
        by_length.setdefault(len(text), []).append(text)
    parts = [expected_counts(torch.stack(texts)) for texts in by_length.values()]
    return reduce(ExpectedCounts.plus, parts)
