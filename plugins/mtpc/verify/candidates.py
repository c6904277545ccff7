"""Verification restricted to the tokens that a top-k leaves, instead of the whole vocabulary.

The rules are those of `mtpc.verify.filters`, `mtpc.verify.rejection` and `mtpc.verify.tree`. Up to rounding they give
the same tokens for the same uniforms: a token outside of every top-k is neither accepted nor drawn. So nothing is
sorted or drawn over all tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draw import draw
from mtpc.verify.output import PADDING, VerifyOutput
from mtpc.verify.rejection import verify_rejection
from mtpc.verify.tree import TreeVerifyOutput, follow_choices


class Candidates(NamedTuple):
    """Distributions with few possible tokens.

    Attributes:
        tokens: int64 [B, ..., k], ascending.
        probs: float64 [B, ..., k], 0 for an impossible token.
    """

    tokens: Tensor
    probs: Tensor


def candidates(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, most: int, in_turn: bool = False
) -> Candidates:
    """Compute `mtpc.verify.filters.filtered` of softmax(logits / temperature) where every top_k is small.

    The mass of all tokens, which a top_p below 1 is compared with, is summed in float32.

    Args:
        logits: float [B, ..., V].
        temperature: float [B], positive.
        top_k: int [B], at most ``most``.
        top_p: float [B].
        min_p: float [B].
        most: k, the largest top_k.
        in_turn: See `filtered`.

    Returns:
        k candidates of each distribution.
    """
    rows = (-1, *[1] * (logits.ndim - 1))
    temperature, top_p = temperature.view(rows), top_p.view(rows)
    tokens = top_tokens(logits, min(most, logits.shape[-1]))
    ranked = logits.gather(-1, tokens).double()  # [B, ..., k]
    weights = ((ranked - ranked[..., :1]) / temperature).exp()
    rank = torch.arange(tokens.shape[-1], device=tokens.device)
    first = rank < top_k.view(rows)
    if in_turn:
        mass = (weights * first).sum(-1, keepdim=True)
    else:
        mass = (logits.float() - ranked[..., :1].float()).div_(temperature).exp_().sum(-1, keepdim=True).double()
    keep = first & ((weights.cumsum(-1) - weights <= top_p * mass) | (top_p >= 1))
    weights = weights * (keep & (weights >= min_p.view(rows)) | (rank == 0))
    tokens, order = tokens.sort(-1)
    return Candidates(tokens, (weights / weights.sum(-1, keepdim=True)).gather(-1, order))


def top_tokens(logits: Tensor, count: int) -> Tensor:
    """Return the tokens of the largest logits, int64 [..., count], in order; equal logits rank by token number.

    `torch.topk` takes and ranks equal values in any order, so a second one finds the lowest token numbers among those
    equal to the smallest.
    """
    size, rank = logits.shape[-1], torch.arange(count, device=logits.device)
    values, tokens = logits.topk(count)
    least = values[..., -1:]
    numbers = torch.arange(size, 0, -1, device=logits.device, dtype=torch.int32)  # the lower, the larger
    border = size - torch.where(logits == least, numbers, 1).topk(count).values.long()
    above = (values > least).sum(-1, keepdim=True)
    tokens = torch.where(rank < above, tokens, border.gather(-1, (rank - above).clamp_min(0)))
    tokens = tokens.sort(-1).values
    order = logits.gather(-1, tokens).sort(dim=-1, descending=True, stable=True).indices
    return tokens.gather(-1, order)


def verify_rejection_candidates(
    drafts: Tensor, draft: Tensor, target: Candidates, accept_uniforms: Tensor, last_uniforms: Tensor
) -> VerifyOutput:
    """Run `verify_rejection` with candidates of the target.

    Args:
        drafts: int64 [B, K], draft tokens.
        draft: Draft probabilities, [B, K, V].
        target: Candidates after each prefix of the draft, [B, K + 1, k].
        accept_uniforms: [B, K], in [0, 1).
        last_uniforms: [B], in [0, 1).

    Returns:
        Accepted and emitted tokens.
    """
    tokens, probs = F.pad(target.tokens, (0, 1)), F.pad(target.probs, (0, 1))  # a last column for any other draft
    columns = F.pad(target.tokens[:, :-1] == drafts[..., None], (0, 1), value=True).to(torch.uint8).argmax(-1)
    result = verify_rejection(columns, draft.gather(-1, tokens[:, :-1]), probs, accept_uniforms, last_uniforms)
    return VerifyOutput(
        result.accepted, _at(tokens, result.tokens.clamp_min(0)).where(result.tokens != PADDING, PADDING)
    )


def verify_tree_candidates(tokens: Tensor, parents: Tensor, target: Candidates, uniforms: Tensor) -> TreeVerifyOutput:
    """Run `verify_tree` with candidates of the target.

    Args:
        tokens: int64 [B, N], see `mtpc.draft.TreeDraft`.
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.
        target: Candidates at the root and at each node, [B, N + 1, k].
        uniforms: [B, N + 1], in [0, 1).

    Returns:
        Accepted and emitted tokens.
    """
    return follow_choices(tokens, parents, _at(target.tokens, draw(target.probs, uniforms)))


def _at(tokens: Tensor, columns: Tensor) -> Tensor:
    """Return the tokens of columns: [B, N, k], int64 [B, N] -> [B, N]."""
    return tokens.gather(-1, columns[..., None])[..., 0]
