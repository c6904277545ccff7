"""Rejection sampling, token by token (Leviathan et al. 2022, algorithm 1; MTPC paper, algorithm 3 lines 14-33).

The emitted tokens are distributed as the target's, whatever the draft's distribution, as long as each draft was
drawn from the distribution that is handed in with it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draw import draw
from mtpc.verify.verdict import Verdict, at_drafts, emit, leading, residual


def acceptance_probabilities(drafts: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    """min(1, p / q) at each draft, [B, K]: its probability to be accepted when those before it were."""
    return _acceptance(at_drafts(target, drafts), at_drafts(draft, drafts))


def _acceptance(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(p < q, p / q.clamp_min(torch.finfo(q.dtype).tiny), (p > 0).to(p.dtype))


def last_token_probabilities(draft: Tensor, target: Tensor) -> Tensor:
    """[B, K + 1, V]: what the last token is drawn from after k = 0..K acceptances.

    After a rejection the residual max(p - q, 0), normalised; after K acceptances the target's own distribution.
    """
    return residual(target, F.pad(draft, (0, 0, 0, 1)))  # beyond the last draft q is zero


def verify_rejection(
    drafts: Tensor, draft: Tensor, target: Tensor, accept_uniforms: Tensor, last_uniforms: Tensor
) -> Verdict:
    """Speculative sampling with explicit uniforms.

    drafts: int64 [B, K].  draft: probabilities [B, K, V] that each draft was drawn from (one-hot where it was
    chosen deterministically).  target: probabilities [B, K + 1, V] after each prefix of the drafts.
    accept_uniforms [B, K] and last_uniforms [B] lie in [0, 1).  A draft of target probability zero is never
    accepted, also by a uniform of zero.
    """
    p, q = at_drafts(target, drafts).double(), at_drafts(draft, drafts).double()
    accepted = leading(accept_uniforms.double() < _acceptance(p, q))
    rows = torch.arange(len(drafts), device=drafts.device)
    last = target[rows, accepted].double()  # [B, V]: `last_token_probabilities`, where one is drawn from
    if drafts.shape[1]:
        rejected = (accepted < drafts.shape[1])[:, None]
        last = residual(last, draft[rows, accepted.clamp_max(drafts.shape[1] - 1)].double() * rejected)
    return emit(drafts, accepted, draw(last, last_uniforms))
