"""Expected acceptance along text that the target wrote, in closed form.

Rejection sampling emits a token x that equals the draft's with probability min(p, q)(x), out of p(x)
in all.  So, given the text that was emitted, draft i was accepted with probability min(1, q/p)(x_i),
independently of the rest: acceptance along a given text is a Markov chain over positions, and the
number of steps that speculative decoding takes for it is found by summing over the chain instead of
by running it (Leviathan et al. 2022, section 3; the chain is this project's).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of a drafter.

    length: tokens per verification step, the target's own token included.
    conditional[i]: probability that draft i + 1 is accepted when those before it were; marginal[i]: that it
    and all before it are.  Both weigh a position by how often a step starts there.
    """

    length: float
    conditional: list[float]
    marginal: list[float]

    def to_json(self) -> dict[str, Any]:
        """Rounded for a report."""
        return {
            "acceptance_length": round(self.length, 4),
            "conditional_acceptance": [round(rate, 4) for rate in self.conditional],
            "marginal_acceptance": [round(rate, 4) for rate in self.marginal],
        }


def decode_acceptance(accept: Tensor) -> Acceptance:
    """Acceptance of speculative decoding along given texts.

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
    steps = weights.sum()
    mean_marginal = (weights * marginal).sum((0, 1)) / steps
    before = torch.cat([torch.ones_like(mean_marginal[:1]), mean_marginal[:-1]])
    return Acceptance(
        length=1.0 + mean_marginal.sum().item(),
        conditional=(mean_marginal / before.clamp_min(1e-12)).tolist(),
        marginal=mean_marginal.tolist(),
    )
