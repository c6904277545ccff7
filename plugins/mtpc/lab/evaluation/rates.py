"""Acceptance rates by draft position, from counts or from marginal rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Rates(NamedTuple):
    """Acceptance rates at draft positions 1..K.

    Attributes:
        conditional: For each position, the share of draft tokens that were accepted among those whose predecessors
            were.
        marginal: For each position, the share of all verification steps that accepted the draft token there.
        length: Acceptance length: mean tokens per target forward pass, the bonus token included.
    """

    conditional: list[float]
    marginal: list[float]
    length: float

    def to_json(self) -> dict[str, Any]:
        """Return the rates rounded for a report."""
        return {
            "acceptance_length": round(self.length, 4),
            "conditional_acceptance": [round(rate, 4) for rate in self.conditional],
            "marginal_acceptance": [round(rate, 4) for rate in self.marginal],
        }


def rates_from_counts(steps: int, accepted_at: Sequence[int]) -> Rates:
    """Compute acceptance rates from counts.

    Args:
        steps: Verification steps.
        accepted_at: For each position, the steps that accepted the draft token there.

    Returns:
        The rates; without steps all of them are 0.
    """
    return rates_from_marginal([count / steps if steps else 0.0 for count in accepted_at])


def rates_from_marginal(marginal: list[float]) -> Rates:
    """Compute all acceptance rates from the marginal ones.

    Args:
        marginal: For each position, the share of all verification steps that accepted the draft token there.

    Returns:
        The rates.
    """
    before = [1.0, *marginal[:-1]]
    conditional = [rate / base if base else 0.0 for rate, base in zip(marginal, before, strict=True)]
    return Rates(conditional, marginal, 1.0 + sum(marginal))
