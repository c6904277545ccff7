"""Top-k, top-p and min-p: what a request's sampling parameters leave of the target's distribution.

Verification is lossless with respect to the distribution that the engine samples from without a drafter, so the
filters are part of the rule.  Engines judge all three on the unfiltered distribution, or each on what the one before it
has left: then top-p keeps less.
"""

from __future__ import annotations

import torch
from torch import Tensor


def filtered(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, in_turn: bool = False) -> Tensor:
    """The filtered distribution, renormalised, [B, ..., V].

    probs: [B, ..., V].  A token is kept if fewer than top_k (int [B]) tokens rank before it, these together have at
    most top_p (float [B]) of the mass, and it has at least min_p (float [B]) times the mass of the first.  Equal tokens
    rank by their number, so that top_k = 1 is greedy decoding's choice.  The most probable token is always kept.
    in_turn: whether "of the mass" is of that of the top_k tokens; min_p says the same either way.
    """
    rows = (-1, *[1] * (probs.ndim - 1))
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    first = rank < top_k.view(rows)
    mass = (ranked * first).sum(-1, keepdim=True) if in_turn else 1.0
    top_p = top_p.view(rows)
    keep = first & ((ranked.cumsum(-1) - ranked <= top_p * mass) | (top_p >= 1))  # [B, ..., V], 1 for any rounding
    keep = keep & (ranked >= min_p.view(rows) * ranked[..., :1]) | (rank == 0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked * keep)
    return kept / kept.sum(-1, keepdim=True)


def filtered_by_min_p(probs: Tensor, min_p: Tensor) -> Tensor:
    """`filtered` without top-k and top-p, which needs no order of the tokens."""
    kept = probs * (probs >= min_p.view(-1, *[1] * (probs.ndim - 1)) * probs.amax(-1, keepdim=True))
    return kept / kept.sum(-1, keepdim=True)
