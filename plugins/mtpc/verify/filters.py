"""Top-k, top-p and min-p: what a request's sampling parameters leave of the target's distribution.

Verification is lossless with respect to the distribution that the engine samples from without a drafter, so the
filters are part of the rule.  All three are judged on the unfiltered distribution, as engines do that filter jointly.
"""

from __future__ import annotations

import torch
from torch import Tensor


def filtered(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """The filtered distribution, renormalised, [B, ..., V].

    probs: [B, ..., V].  A token is kept if fewer than top_k (int [B]) tokens rank before it, these together have at
    most top_p (float [B]) of the mass, and it has at least min_p (float [B]) times the mass of the first.  Equal tokens
    rank by their number, so that top_k = 1 is greedy decoding's choice.  The most probable token is always kept.
    """
    rows = (-1, *[1] * (probs.ndim - 1))
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    keep = (rank < top_k.view(rows)) & (ranked.cumsum(-1) - ranked <= top_p.view(rows))  # [B, ..., V]
    keep = keep & (ranked >= min_p.view(rows) * ranked[..., :1]) | (rank == 0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked * keep)
    return kept / kept.sum(-1, keepdim=True)
