"""Rejection sampling, token by token (Leviathan et al. 2022, algorithm 1; MTPC paper, algorithm 3 lines 14-33).

The emitted tokens are distributed as the target's, whatever the draft's distribution, as long as each draft was
drawn from the distribution that is handed in with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.draw import draw
from mtpc.verify.output import VerifyOutput, count_leading, emit, probs_of_drafts, residual


def acceptance_probabilities(drafts: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    """min(1, p / q) at each draft, float64 [B, K]: its probability to be accepted when those before it were.

    A draft of which q states no probability above 0, or none at all (NaN), is rejected.
    """
    p, q = probs_of_drafts(target, drafts).double(), probs_of_drafts(draft, drafts).double()
    return torch.where(p < q, p / q.clamp_min(torch.finfo(q.dtype).tiny), ((p > 0) & (q > 0)).to(p.dtype))


def last_token_probabilities(draft: Tensor, target: Tensor, accepted: Tensor) -> Tensor:
    """float64 [B, V]: what the last token is drawn from after so many acceptances, int64 [B].

    After a rejection the residual max(p - q, 0), normalised; after K acceptances the target's own distribution.
    """
    rows, drafts = torch.arange(len(accepted), device=accepted.device), draft.shape[1]
    own = target[rows, accepted].double()
    if not drafts:
        return own
    rejected = (accepted < drafts)[:, None]  # beyond the last draft q is zero
    return residual(own, draft[rows, accepted.clamp_max(drafts - 1)].double() * rejected)


def verify_rejection(
    drafts: Tensor, draft: Tensor, target: Tensor, accept_uniforms: Tensor, last_uniforms: Tensor
) -> VerifyOutput:
    """Speculative sampling with explicit uniforms.

    drafts: int64 [B, K].  draft: probabilities [B, K, V] that each draft was drawn from (one-hot where it was
    chosen deterministically).  target: probabilities [B, K + 1, V] after each prefix of the drafts.
    accept_uniforms [B, K] and last_uniforms [B] lie in [0, 1).  A draft of target probability zero is never
    accepted, also by a uniform of zero.
    """
    accepted = count_leading(accept_uniforms.double() < acceptance_probabilities(drafts, draft, target))
    return emit(drafts, accepted, draw(last_token_probabilities(draft, target, accepted), last_uniforms))
