"""Block verification: the draft tokens are verified jointly.

Sun et al. 2024, "Block verification accelerates speculative decoding".  It is lossless, as rejection sampling is, and
never accepts fewer tokens on average.  With p and q given the first i draft tokens, this file computes:

    w_0 = 1,  w_i = min(1, w_{i-1} p(x_i) / q(x_i))
    m_i = sum_x max(w_i p(x) - q(x), 0)
    h_K = w_K,  h_i = m_i / (m_i + 1 - w_i) for i < K

The first i draft tokens are accepted for the largest i whose uniform lies below h_i.  The last token is drawn from
max(w_i p - q, 0), normalized, or from p after K acceptances.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draw import draw
from mtpc.verify.output import VerifyOutput, emit, probs_of_drafts, residual


def block_weights(drafts: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    """w_0..w_K along the drafts, [B, K + 1]."""
    p, q = probs_of_drafts(target, drafts), probs_of_drafts(draft, drafts)  # [B, K]
    weights = [torch.ones_like(target[:, 0, 0])]
    for i in range(drafts.shape[1]):
        grown = weights[-1] * p[:, i]
        ratio = grown / q[:, i].clamp_min(torch.finfo(q.dtype).tiny)
        weights.append(torch.where(grown < q[:, i], ratio, (grown > 0).to(p.dtype)))
    return torch.stack(weights, 1)


def block_acceptance(weights: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    """h_1..h_K, [B, K]: the first i drafts are accepted, if no more are, with probability h_i."""
    inner = weights[:, 1:-1]  # [B, K - 1]
    mass = (inner[..., None] * target[:, 1:-1] - draft[:, 1:]).clamp_min(0.0).sum(-1)
    # Where w_i = 1 and p = q the quotient is 0 / 0: such a prefix is accepted, as it is for every p near q.
    inner = torch.where(inner < 1.0, mass / (mass + 1.0 - inner).clamp_min(torch.finfo(mass.dtype).tiny), inner)
    return torch.cat([inner, weights[:, 1:][:, -1:]], 1)


def last_token_probabilities(weights: Tensor, draft: Tensor, target: Tensor) -> Tensor:
    """[B, K + 1, V]: what the last token is drawn from after k = 0..K acceptances."""
    scaled = weights[:, :-1, None] * target[:, :-1]
    return torch.cat([residual(scaled, draft), target[:, -1:]], 1)


def verify_block(
    drafts: Tensor, draft: Tensor, target: Tensor, accept_uniforms: Tensor, last_uniforms: Tensor
) -> VerifyOutput:
    """Block verification with explicit uniforms; arguments and result as for `verify_rejection`."""
    draft, target = draft.double(), target.double()
    weights = block_weights(drafts, draft, target)
    passed = accept_uniforms.double() < block_acceptance(weights, draft, target)  # [B, K]
    count = torch.arange(1, drafts.shape[1] + 1, device=drafts.device)
    accepted = F.pad(passed * count, (1, 0)).amax(1)  # the longest prefix that passed, 0 if none
    rows = torch.arange(len(drafts), device=drafts.device)
    last = draw(last_token_probabilities(weights, draft, target)[rows, accepted], last_uniforms)
    return emit(drafts, accepted, last)
