"""Verification of trees: the target chooses a token at each node it reaches, and descends while a child carries it.

The drafts are deterministic, so nothing need be known of their distribution: what is emitted are the target's own
choices, greedy or drawn, whatever the tree.  Of all lossless rules for a given set of siblings this accepts most
often, with the sum of their target probabilities (SpecInfer's multi-step rejection sampling, Miao et al. 2023, makes
the same of one-hot drafts).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draw import draw
from mtpc.verify.output import PADDING, emit


class TreeVerifyOutput(NamedTuple):
    """accepted: int64 [B], how many drafts were accepted, 0..N.

    tokens: int64 [B, N + 1], the accepted drafts, then one token of the target's own, then `PADDING`.
    path: int64 [B, N], the indices of the accepted nodes from the top of the tree, then `PADDING`.
    """

    accepted: Tensor
    tokens: Tensor
    path: Tensor


def verify_tree_greedy(tokens: Tensor, parents: Tensor, target: Tensor) -> TreeVerifyOutput:
    """Follow the target's most likely tokens through the tree.

    tokens, parents: int64 [B, N], see `mtpc.draft.TreeDraft`.  target: [B, N + 1, V] logits or probabilities, first
    after the token that the tree continues, then after each node.  The emitted tokens are those of greedy decoding
    without a drafter.
    """
    return follow_choices(tokens, parents, target.argmax(-1))


def verify_tree(tokens: Tensor, parents: Tensor, target: Tensor, uniforms: Tensor) -> TreeVerifyOutput:
    """Target-only tree sampling with explicit uniforms: a token is drawn at every node, and those reached count.

    tokens, parents, target: as for `verify_tree_greedy`, but probabilities, one-hot in the rows of greedy requests.
    uniforms: [B, N + 1] in [0, 1), one for each distribution.  The emitted tokens are distributed as the target's.
    """
    return follow_choices(tokens, parents, draw(target, uniforms))


def follow_choices(tokens: Tensor, parents: Tensor, chosen: Tensor) -> TreeVerifyOutput:
    """The path of the target's choices: tokens, parents int64 [B, N]; chosen int64 [B, N + 1], as the target's rows.

    O(N log N), in log2 N steps.
    """
    matches = F.pad(tokens == chosen.gather(1, parents + 1), (1, 0), value=True)  # [B, N + 1], row 0 is the root
    kept, above = matches, _above(parents)
    for _ in range(tokens.shape[1].bit_length()):  # a node is kept if all its ancestors match; twice as many each time
        kept, above = kept & kept.gather(1, above), above.gather(1, above)
    index = torch.arange(tokens.shape[1] + 1, device=tokens.device)  # [N + 1]
    last = torch.where(kept, index, 0).amax(1, keepdim=True)  # parents come before children: the deepest is the last
    kept = kept[:, 1:]
    accepted = kept.sum(1)
    path = kept.to(torch.int8).sort(dim=1, descending=True, stable=True).indices  # [B, N]
    verdict = emit(tokens.gather(1, path), accepted, chosen.gather(1, last)[:, 0])
    return TreeVerifyOutput(accepted, verdict.tokens, path.masked_fill(index[:-1] >= accepted[:, None], PADDING))


def node_depths(parents: Tensor) -> Tensor:
    """How many drafts lead to each node, itself included: parents int64 [B, N] -> int64 [B, N]."""
    depth, above = F.pad(torch.ones_like(parents), (1, 0)), _above(parents)
    for _ in range(parents.shape[1].bit_length()):
        depth, above = depth + depth.gather(1, above), above.gather(1, above)
    return depth[:, 1:]


def ancestors(parents: Tensor, itself: bool) -> Tensor:
    """Which of the root and the nodes lead to each of them: int64 [B, N] -> bool [B, N + 1, N + 1], the root first.

    itself: whether a node counts as one of those that lead to it.
    """
    size, above = parents.shape[1] + 1, _above(parents)
    known = torch.eye(size, dtype=torch.bool, device=parents.device).expand(len(parents), size, size)
    for _ in range(parents.shape[1].bit_length()):  # twice as far up each time
        known = known | known.gather(1, above[..., None].expand_as(known))
        above = above.gather(1, above)
    return known if itself else known & ~torch.eye(size, dtype=torch.bool, device=parents.device)


def _above(parents: Tensor) -> Tensor:
    """The row of each row's parent among the root and the nodes, [B, N + 1]; the root is its own."""
    return F.pad(parents + 1, (1, 0))
