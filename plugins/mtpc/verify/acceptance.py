"""Acceptance under rejection sampling: expected, in closed form, and measured, from counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.verify.rejection import acceptance_probabilities


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


def overlap(draft: Tensor, target: Tensor) -> Tensor:
    """sum_v min(p, q) = 1 - TV(p, q), [...], of [..., V]: the acceptance probability of a draft drawn from q.

    Leviathan et al. 2022, corollary 3.6.
    """
    return torch.minimum(draft, target).sum(-1)


def expected_rates(drafts: Tensor, draft: Tensor, target: Tensor) -> Rates:
    """Expected acceptance over the uniforms and over each last draft, averaged over the drafted paths of a batch.

    drafts: int64 [B, K], drawn from draft, [B, K, V]; target: [B, K or K + 1, V] along the drafts.  Position i
    contributes the product of min(1, p / q) at the drafts before it times the overlap at i, which is unbiased for
    the marginal rate and varies less than counting acceptances.
    """
    draft, target = draft.double(), target.double()[:, : drafts.shape[1]]
    before = acceptance_probabilities(drafts, draft, target).cumprod(1).roll(1, 1)  # [B, K]
    before[:, :1] = 1.0
    return rates_from_marginal((before * overlap(draft, target)).mean(0).tolist())


def rates_from_counts(steps: int, accepted_at: Sequence[int]) -> Rates:
    """Rates of `steps` verification steps, `accepted_at[i]` of which accepted draft i + 1."""
    return rates_from_marginal([count / steps if steps else 0.0 for count in accepted_at])


def rates_from_marginal(marginal: list[float]) -> Rates:
    """All rates, from the marginal ones."""
    before = [1.0, *marginal[:-1]]
    conditional = [rate / base if base else 0.0 for rate, base in zip(marginal, before, strict=True)]
    return Rates(conditional, marginal, 1.0 + sum(marginal))
