"""Verification among the tokens that a top-k leaves: their columns take the place of the whole vocabulary.

The rules are those of `mtpc.verify.filters`, `mtpc.verify.rejection` and `mtpc.verify.tree`, with the same tokens from
the same uniforms, but for rounding: a token beyond every top-k is neither accepted nor drawn, so nothing is sorted or
drawn over all tokens.
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
    """A distribution with few possible tokens.

    tokens: int64 [B, ..., k], ascending.  probs: float64 [B, ..., k], 0 for one that is not possible.
    """

    tokens: Tensor
    probs: Tensor


def candidates(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, most: int, in_turn: bool = False
) -> Candidates:
    """`mtpc.verify.filters.filtered` of softmax(logits / temperature) where no top_k is larger than `most`.

    logits: float [B, ..., V].  temperature: float [B], above 0.  top_k, top_p, min_p, in_turn: see `filtered`.  The
    mass of all tokens, which a top_p below 1 is held against, is summed in float32.
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
    """The tokens of the largest logits, int64 [..., count], ranked; equal tokens rank by their number.

    `torch.topk` takes and ranks equal values in any order, so a second one finds the lowest numbers of those at the
    border.
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
    """`verify_rejection` with the target's candidates, [B, K + 1, k], after each prefix of the drafts."""
    tokens, probs = F.pad(target.tokens, (0, 1)), F.pad(target.probs, (0, 1))  # a last column for any other draft
    columns = F.pad(target.tokens[:, :-1] == drafts[..., None], (0, 1), value=True).to(torch.uint8).argmax(-1)
    verdict = verify_rejection(columns, draft.gather(-1, tokens[:, :-1]), probs, accept_uniforms, last_uniforms)
    return VerifyOutput(
        verdict.accepted, _at(tokens, verdict.tokens.clamp_min(0)).where(verdict.tokens != PADDING, PADDING)
    )


def verify_tree_candidates(tokens: Tensor, parents: Tensor, target: Candidates, uniforms: Tensor) -> TreeVerifyOutput:
    """`verify_tree` with the target's candidates, [B, N + 1, k], at every node."""
    return follow_choices(tokens, parents, _at(target.tokens, draw(target.probs, uniforms)))


def _at(tokens: Tensor, columns: Tensor) -> Tensor:
    """The tokens of columns: [B, N, k], int64 [B, N] -> [B, N]."""
    return tokens.gather(-1, columns[..., None])[..., 0]
