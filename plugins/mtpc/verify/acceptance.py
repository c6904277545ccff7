"""Rates of acceptance by draft position, from counts or from marginal rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Rates(NamedTuple):
    """Acceptance by draft position, 1..K.

    conditional[i]: share of the drafts i + 1 that were accepted, of those whose predecessors were.
    marginal[i]: share of all steps that accepted draft i + 1 and those before it.
    length: acceptance length, tokens per verification step with the target's own token counted.
    """

    conditional: list[float]
    marginal: list[float]
    length: float

    def to_json(self) -> dict[str, Any]:
        """Rounded for a report."""
        return {
            "acceptance_length": round(self.length, 4),
            "conditional_acceptance": [round(rate, 4) for rate in self.conditional],
            "marginal_acceptance": [round(rate, 4) for rate in self.marginal],
        }


def rates_from_counts(steps: int, accepted_at: Sequence[int]) -> Rates:
    """Rates of `steps` verification steps, `accepted_at[i]` of which accepted draft i + 1."""
    return rates_from_marginal([count / steps if steps else 0.0 for count in accepted_at])


def rates_from_marginal(marginal: list[float]) -> Rates:
    """All rates, from the marginal ones."""
    before = [1.0, *marginal[:-1]]
    conditional = [rate / base if base else 0.0 for rate, base in zip(marginal, before, strict=True)]
    return Rates(conditional, marginal, 1.0 + sum(marginal))
