"""Repetition, presence and frequency penalties for each draft token by the tokens on its own path.

An engine that penalizes all draft tokens of a draft by the same counts changes the output: the second draft token has
to count the first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.verify.tree import ancestors, node_depths


class Penalties(NamedTuple):
    """Penalties of B requests, with the engines' definitions.

    Attributes:
        frequency: float32 [B], subtracted from a token's logit once for each occurrence in the text.
        presence: float32 [B], subtracted once where the text has the token.
        repetition: float32 [B]. Where the text has the token, a positive logit is divided by it and a negative one
            multiplied.
    """

    frequency: Tensor
    presence: Tensor
    repetition: Tensor

    def of(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Penalize logits, float32 [B, N, M], of tokens with counts in the text, float32 [B, N or 1, M]."""
        frequency, presence, repetition = (each[:, None, None] for each in self)
        there = counts > 0
        logits = logits - (frequency * counts + presence * there)
        scale = torch.where(there, repetition, 1.0)
        return torch.where(logits < 0, logits * scale, logits / scale)


def penalize(
    logits: Tensor, tokens: Tensor, parents: Tensor, counts: Tensor, penalties: Penalties, late: bool
) -> Tensor:
    """Penalize the logits at every node by the text before the tree and the nodes on its path.

    Args:
        logits: float32 [B, N + 1, V], at the tree's root and at each draft token.
        tokens: int64 [B, N + 1], the root and the draft tokens.
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.
        counts: [B, V], how often each token occurs in the text before the root.
        penalties: Of the B requests.
        late: Whether counts lag by one token, as in some engines: a node then does not count its own token.

    Returns:
        float32 [B, N + 1, V]. The penalized rows of a request differ only at the N + 1 tokens of its tree.
    """
    known = ancestors(parents, itself=not late)  # [B, N + 1, N + 1]
    tokens = tokens.clamp_min(0)
    same = tokens[:, :, None] == tokens[:, None, :]
    further = known.float() @ same.float()  # [B, N + 1, N + 1]: how often a node's path has each token of the tree
    at = tokens[:, None].expand_as(further)
    special = penalties.of(logits.gather(2, at), counts.gather(1, tokens)[:, None] + further)
    return penalties.of(logits, counts[:, None].float()).scatter(2, at, special)


def forbid_early_ends(logits: Tensor, parents: Tensor, ends: Tensor, missing: Tensor) -> Tensor:
    """Mask the tokens that would end the text before its minimum length.

    Args:
        logits: float32 [B, N + 1, V], at the tree's root and at each draft token.
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.
        ends: int64 [B, E], the tokens that end a request's text; padded with repetitions.
        missing: int64 [B], how many tokens the text must still have after the root.

    Returns:
        float32 [B, N + 1, V], -inf at masked tokens.
    """
    early = F.pad(node_depths(parents), (1, 0)) < missing[:, None]  # [B, N + 1]
    at = ends[:, None].expand(-1, early.shape[1], -1)
    return logits.scatter(2, at, logits.gather(2, at).masked_fill(early[..., None], -torch.inf))


def add_counts(counts: Tensor, tokens: Tensor) -> None:
    """Add token counts in place.

    Args:
        counts: [B, V].
        tokens: int64 [B, M], -1 for none.
    """
    counts.scatter_add_(1, tokens.clamp_min(0), (tokens >= 0).to(counts.dtype))
