"""Tree verification: the target chooses a token at each node on its path and descends while a child has that token.

Draft trees are deterministic, so their draft distributions are not needed. The emitted tokens are the target's own
choices, greedy or sampled, for any tree.
For a given set of siblings no lossless rule accepts more often: acceptance is the sum of their target probabilities.
SpecInfer's multi-step rejection sampling (Miao et al. 2023) gives the same for one-hot draft distributions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draw import draw
from mtpc.verify.output import PADDING, emit


class TreeVerifyOutput(NamedTuple):
    """Result of verifying a tree.

    Attributes:
        accepted: int64 [B], accepted draft tokens, 0..N.
        tokens: int64 [B, N + 1], the accepted draft tokens, one token of the target, then `PADDING`.
        path: int64 [B, N], indices of the accepted nodes from the top of the tree, then `PADDING`.
    """

    accepted: Tensor
    tokens: Tensor
    path: Tensor


def verify_tree(tokens: Tensor, parents: Tensor, target: Tensor, uniforms: Tensor) -> TreeVerifyOutput:
    """Sample the target's token at every node, and accept the nodes that these choices reach.

    The emitted tokens are distributed as the target's.

    Args:
        tokens: int64 [B, N], see `mtpc.draft.TreeDraft`.
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.
        target: Probabilities at the root and at each node, [B, N + 1, V]; one-hot for greedy requests.
        uniforms: [B, N + 1], in [0, 1).

    Returns:
        Accepted and emitted tokens.
    """
    return follow_choices(tokens, parents, draw(target, uniforms))


def follow_choices(tokens: Tensor, parents: Tensor, chosen: Tensor) -> TreeVerifyOutput:
    """Find the path of the target's choices, in O(N log N) with log2 N dependent steps.

    Args:
        tokens: int64 [B, N], see `mtpc.draft.TreeDraft`.
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.
        chosen: int64 [B, N + 1], the target's token at the root and at each node.

    Returns:
        Accepted and emitted tokens.
    """
    matches = F.pad(tokens == chosen.gather(1, parents + 1), (1, 0), value=True)  # [B, N + 1], row 0 is the root
    kept, above = matches, _above(parents)
    for _ in range(tokens.shape[1].bit_length()):  # a node is kept if all its ancestors match (pointer doubling)
        kept, above = kept & kept.gather(1, above), above.gather(1, above)
    index = torch.arange(tokens.shape[1] + 1, device=tokens.device)  # [N + 1]
    last = torch.where(kept, index, 0).amax(1, keepdim=True)  # parents come before children: the deepest is the last
    kept = kept[:, 1:]
    accepted = kept.sum(1)
    path = kept.to(torch.int8).sort(dim=1, descending=True, stable=True).indices  # [B, N]
    result = emit(tokens.gather(1, path), accepted, chosen.gather(1, last)[:, 0])
    return TreeVerifyOutput(accepted, result.tokens, path.masked_fill(index[:-1] >= accepted[:, None], PADDING))


def node_depths(parents: Tensor) -> Tensor:
    """Return the depth of each node: the number of draft tokens on its path, itself included.

    Args:
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.

    Returns:
        int64 [B, N].
    """
    depth, above = F.pad(torch.ones_like(parents), (1, 0)), _above(parents)
    for _ in range(parents.shape[1].bit_length()):
        depth, above = depth + depth.gather(1, above), above.gather(1, above)
    return depth[:, 1:]


def ancestors(parents: Tensor, itself: bool) -> Tensor:
    """Return which of the root and the nodes are ancestors of each.

    Args:
        parents: int64 [B, N], see `mtpc.draft.TreeDraft`.
        itself: Whether a node counts as its own ancestor.

    Returns:
        bool [B, N + 1, N + 1], the root first.
    """
    size, above = parents.shape[1] + 1, _above(parents)
    known = torch.eye(size, dtype=torch.bool, device=parents.device).expand(len(parents), size, size)
    for _ in range(parents.shape[1].bit_length()):  # pointer doubling
        known = known | known.gather(1, above[..., None].expand_as(known))
        above = above.gather(1, above)
    return known if itself else known & ~torch.eye(size, dtype=torch.bool, device=parents.device)


def _above(parents: Tensor) -> Tensor:
    """Return the row of each row's parent among the root and the nodes, [B, N + 1]; the root is its own parent."""
    return F.pad(parents + 1, (1, 0))
