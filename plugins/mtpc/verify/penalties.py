"""Penalties of the tokens that a text already has, for each draft by the tokens on its own path.

An engine that penalizes all drafts of a step alike changes the text: the second draft does not know of the first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.verify.tree import ancestors, node_depths


class Penalties(NamedTuple):
    """Of B requests, float32 [B] each, as the engines define them.

    frequency: taken off a token's logit once for every time that the text has it.  presence: taken off once.
    repetition: what a logit above 0 is divided by, and one below 0 multiplied with, where the text has the token.
    """

    frequency: Tensor
    presence: Tensor
    repetition: Tensor

    def of(self, logits: Tensor, counts: Tensor) -> Tensor:
        """The logits, float32 [B, N, M], of tokens that the text has so many times, float32 [B, N or 1, M]."""
        frequency, presence, repetition = (each[:, None, None] for each in self)
        there = counts > 0
        logits = logits - (frequency * counts + presence * there)
        scale = torch.where(there, repetition, 1.0)
        return torch.where(logits < 0, logits * scale, logits / scale)


def penalize(
    logits: Tensor, tokens: Tensor, parents: Tensor, counts: Tensor, penalties: Penalties, late: bool
) -> Tensor:
    """The logits at every node, penalized by the text before the tree and the nodes that lead there.

    logits: float32 [B, N + 1, V], at the tree's root and at each draft.  tokens: int64 [B, N + 1], the root and the
    drafts.  parents: int64 [B, N], see `mtpc.draft.TreeDraft`.  counts: [B, V], how often each token is in the text
    before the root.  late: a token counts one token later than it should, so a node does not know of itself.

    Returns: float32 [B, N + 1, V].  Only at the N + 1 tokens of the tree a request's rows differ in what is penalized.
    """
    known = ancestors(parents, itself=not late)  # [B, N + 1, N + 1]
    tokens = tokens.clamp_min(0)
    same = tokens[:, :, None] == tokens[:, None, :]
    further = known.float() @ same.float()  # [B, N + 1, N + 1]: how often a node's path has each token of the tree
    at = tokens[:, None].expand_as(further)
    special = penalties.of(logits.gather(2, at), counts.gather(1, tokens)[:, None] + further)
    return penalties.of(logits, counts[:, None].float()).scatter(2, at, special)


def forbid_early_ends(logits: Tensor, parents: Tensor, ends: Tensor, missing: Tensor) -> Tensor:
    """The logits at every node, without the tokens that would end the text too early.

    logits: float32 [B, N + 1, V].  parents: int64 [B, N].  ends: int64 [B, E], the tokens that end a request's text,
    some more than once where it has fewer.  missing: int64 [B], how many tokens after the root the text must have.
    """
    early = F.pad(node_depths(parents), (1, 0)) < missing[:, None]  # [B, N + 1]
    at = ends[:, None].expand(-1, early.shape[1], -1)
    return logits.scatter(2, at, logits.gather(2, at).masked_fill(early[..., None], -torch.inf))


def add_counts(counts: Tensor, tokens: Tensor) -> None:
    """Add tokens, int64 [B, M], -1 for none, to ``counts``, [B, V], in place."""
    counts.scatter_add_(1, tokens.clamp_min(0), (tokens >= 0).to(counts.dtype))
