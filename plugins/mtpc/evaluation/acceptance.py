"""Expected acceptance along text that the target wrote, in closed form.

Rejection sampling emits a token x that equals the draft's with probability min(p, q)(x), out of p(x)
in all.  So, given the text that was emitted, draft i was accepted with probability min(1, q/p)(x_i),
independently of the rest: acceptance along a given text is a Markov chain over positions, and the
number of steps that speculative decoding takes for it is found by summing over the chain instead of
by running it (Leviathan et al. 2022, section 3; the chain is this project's).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.verify import Rates, rates_from_marginal


def decode_acceptance(accept: Tensor) -> Rates:
    """Acceptance of speculative decoding along given texts, a position weighed by how often a step starts there.

    accept: float64 [S, L, K]; accept[s, t, i] is the probability that, in a step that starts after
    position t of text s, draft i + 1 is accepted when those before it were.
    """
    steps, accepted = expected_counts(accept)
    return rates_from_marginal((accepted / steps).tolist())


def expected_counts(accept: Tensor) -> tuple[Tensor, Tensor]:
    """The expected number of steps, [], and of acceptances of each draft, [K], over all texts of `decode_acceptance`.

    Those of texts of other lengths may be added to them.
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
    return weights.sum(), (weights * marginal).sum((0, 1))
