"""Top-k, top-p and min-p filters of the target's distribution.

Verification is lossless with respect to the distribution that the engine samples from without a drafter, so the filters
are part of the rule.
Engines apply all three to the unfiltered distribution, or each to the result of the one before. In the second case
top-p keeps fewer tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


def filtered(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, in_turn: bool = False) -> Tensor:
    """Filter distributions and renormalize them.

    A token is kept if fewer than top_k tokens rank before it and these have at most top_p of the mass. It must also
    have at least min_p times the mass of the first.
    Equal tokens rank by their number, so top_k = 1 is the choice of greedy decoding. The most probable token is always
    kept.

    Args:
        probs: [B, ..., V].
        top_k: int [B].
        top_p: float [B].
        min_p: float [B].
        in_turn: Whether top_p refers to the mass of the top_k tokens instead of all. min_p is the same either way.

    Returns:
        [B, ..., V].
    """
    rows = (-1, *[1] * (probs.ndim - 1))
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    first = rank < top_k.view(rows)
    mass = (ranked * first).sum(-1, keepdim=True) if in_turn else 1.0
    top_p = top_p.view(rows)
    keep = first & ((ranked.cumsum(-1) - ranked <= top_p * mass) | (top_p >= 1))  # [B, ..., V]; top_p = 1 keeps all
    keep = keep & (ranked >= min_p.view(rows) * ranked[..., :1]) | (rank == 0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked * keep)
    return kept / kept.sum(-1, keepdim=True)


def filtered_by_min_p(probs: Tensor, min_p: Tensor) -> Tensor:
    """Apply only min-p, as `filtered` does but without sorting the tokens.

    Args:
        probs: [B, ..., V].
        min_p: float [B].

    Returns:
        [B, ..., V].
    """
    kept = probs * (probs >= min_p.view(-1, *[1] * (probs.ndim - 1)) * probs.amax(-1, keepdim=True))
    return kept / kept.sum(-1, keepdim=True)
