"""Speculative sampling, token by token (Leviathan et al. 2023, algorithm 1; MTPC paper, algorithm 3, lines 14 to 33).

The emitted tokens are distributed as the target's for any draft distribution, provided that each draft token was drawn
from the distribution that is passed with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.draw import draw
from mtpc.verify.output import VerifyOutput, count_leading, emit, probs_of_drafts, residual


def acceptance_probabilities(drafts: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    """Compute min(1, p / q) at each draft token: its acceptance probability once all before it are accepted.

    A draft token with q <= 0 or q = NaN is rejected.

    Args:
        drafts: int64 [B, K].
        draft: Draft probabilities q, [B, K, V].
        target: Target probabilities p, [B, K + 1, V].

    Returns:
        float64 [B, K].
    """
    return acceptance_ratio(probs_of_drafts(target, drafts), probs_of_drafts(draft, drafts))


def acceptance_ratio(target: Tensor, draft: Tensor) -> Tensor:
    """Return min(1, p / q) of single tokens, float64; 0 where q <= 0 or q = NaN.

    Args:
        target: p of each draft token, [...].
        draft: q of each draft token, [...].
    """
    p, q = target.double(), draft.double()
    return torch.where(p < q, p / q.clamp_min(torch.finfo(q.dtype).tiny), ((p > 0) & (q > 0)).to(p.dtype))


def last_token_probabilities(draft: Tensor, target: Tensor, accepted: Tensor) -> Tensor:
    """Compute the distribution of the last emitted token.

    After a rejection it is the residual max(p - q, 0), normalized (Leviathan et al. 2023, section 2.3). After K
    acceptances it is the target's distribution.

    Args:
        draft: Draft probabilities q, [B, K, V].
        target: Target probabilities p, [B, K + 1, V].
        accepted: int64 [B], accepted draft tokens.

    Returns:
        float64 [B, V].
    """
    rows, drafts = torch.arange(len(accepted), device=accepted.device), draft.shape[1]
    last = target[rows, accepted].double()
    if not drafts:
        return last
    rejected = (accepted < drafts)[:, None]  # after the last draft token q is zero
    return residual(last, draft[rows, accepted.clamp_max(drafts - 1)].double() * rejected)


def verify_rejection(
    drafts: Tensor, draft: Tensor, target: Tensor, accept_uniforms: Tensor, last_uniforms: Tensor
) -> VerifyOutput:
    """Verify draft tokens by speculative sampling with explicit uniforms.

    A draft token of target probability zero is never accepted, not even with a uniform of zero.

    Args:
        drafts: int64 [B, K].
        draft: Probabilities that each draft token was drawn from, [B, K, V]; one-hot where it was deterministic.
        target: Target probabilities after each prefix of the draft, [B, K + 1, V].
        accept_uniforms: [B, K], in [0, 1).
        last_uniforms: [B], in [0, 1).

    Returns:
        Accepted and emitted tokens.
    """
    accepted = count_leading(accept_uniforms.double() < acceptance_probabilities(drafts, draft, target))
    return emit(drafts, accepted, draw(last_token_probabilities(draft, target, accepted), last_uniforms))
