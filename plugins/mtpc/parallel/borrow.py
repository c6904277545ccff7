"""Lossless full tree attention (Gumiho, section 3.3): shorter paths continue with borrowed tokens of longer ones.

Gumiho's borrowed tokens reuse the key and value of the path that they were drafted on. The target then conditions on
another text.
Here a borrowed token is a node of its own under the shorter path, computed with that path's ancestors and positions.
The tree is an ordinary tree, so every verification rule for trees stays exact.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draft import TreeDraft
from mtpc.errors import MTPCError
from mtpc.verify.tree import node_depths


def check_borrowed(size: int, count: int) -> None:
    """Check a number of borrowed nodes.

    Args:
        size: Nodes of the tree.
        count: Nodes to borrow.

    Raises:
        MTPCError: Unless 0 <= ``count`` < ``size``.
    """
    if not 0 <= count < size:
        raise MTPCError(f"cannot borrow {count} of {size} draft tree nodes: the number must be from 0 to {size - 1}.")


def borrow_nodes(draft: TreeDraft, count: int) -> TreeDraft:
    """Replace the least probable nodes of a tree by borrowed ones.

    The N - count most probable nodes are kept. The most probable of each depth is the donor of that depth.
    A path that ends before the longest continues with the tokens of the donors of the following depths. The ``count``
    most probable of these candidates are borrowed. A borrowed node's score is that of its parent plus the conditional
    log-probability of its donor. This is exact where positions are independent and an estimate otherwise. Where fewer
    than ``count`` can be borrowed, the next best nodes of the tree fill the rest.

    The result contains the N - count best nodes, so on no text does it accept less than these alone.
    By the drafter's probabilities it is expected to accept no more than the N nodes that were given, if these are the N
    most probable (see `mtpc.parallel.tree`). Borrowing therefore helps only where the drafter's probabilities are wrong
    or were not computed for every path.

    Vectorized over the batch, with static shapes and without synchronization with the host.

    Args:
        draft: A tree of N nodes, the most probable first.
        count: Nodes to borrow, less than N.

    Returns:
        A tree of N nodes: the kept ones first, then the borrowed ones.

    Raises:
        MTPCError: For a ``count`` out of bounds, see `check_borrowed`.
    """
    check_borrowed(draft.tokens.shape[1], count)
    if not count:
        return draft
    size, depths = draft.tokens.shape[1] - count, node_depths(draft.parents)
    kept, rest = (TreeDraft(*(each[:, part] for each in draft)) for part in (slice(size), slice(size, None)))
    paths = _Paths.of(kept, depths[:, :size])
    tokens, scores, possible = (each.flatten(1) for each in paths.continuations(kept, count))  # [B, S count]
    # A stable sort keeps parents, which come first, before equal children; impossible candidates come last.
    lowest = torch.finfo(scores.dtype).min
    order = scores.clamp_min(lowest).masked_fill(~possible, -torch.inf).sort(dim=1, descending=True, stable=True)
    taken, places = order.indices[:, :count], size + torch.arange(count, device=tokens.device).expand_as(rest.tokens)
    place = torch.zeros_like(tokens).scatter(1, taken, places)  # position in the result of each candidate that is taken
    above = torch.where(taken % count == 0, taken // count, place.gather(1, (taken - 1).clamp_min(0)))
    duplicate = paths.duplicates(draft, depths)
    usable = torch.cat([possible.gather(1, taken), duplicate < 0], 1)
    chosen = (~usable).to(torch.int8).sort(dim=1, stable=True).indices[:, :count]
    filled = torch.zeros_like(usable, dtype=torch.int64).scatter(1, chosen, places)[:, count:]  # where the rest goes
    filled = torch.where(duplicate < 0, filled, place.gather(1, duplicate.clamp_min(0)))
    under = torch.where(rest.parents < size, rest.parents, filled.gather(1, (rest.parents - size).clamp_min(0)))
    found = TreeDraft(tokens.gather(1, taken), above, scores.gather(1, taken)), rest._replace(parents=under)
    more = (torch.cat(both, 1).gather(1, chosen) for both in zip(*found, strict=True))
    return TreeDraft(*(torch.cat(both, 1) for both in zip(kept, more, strict=True)))


class _Paths(NamedTuple):
    """The donors of S kept nodes, and which paths can be continued.

    Attributes:
        depths: int64 [B, S].
        is_leaf: bool [B, S].
        donors: int64 [B, S + 1], the donor of each depth.
        tokens: int64 [B, S + 1], the donors' tokens.
    """

    depths: Tensor
    is_leaf: Tensor
    donors: Tensor
    tokens: Tensor

    @classmethod
    def of(cls, kept: TreeDraft, depths: Tensor) -> Self:
        """Find the donors: the first node of a depth is its most probable one."""
        root = F.pad(torch.zeros_like(depths), (1, 0))  # [B, S + 1]
        nodes = torch.arange(depths.shape[1], device=depths.device).expand_as(depths)
        donors = root.scatter_reduce(1, depths, nodes, "amin", include_self=False)
        is_leaf = root.scatter(1, kept.parents + 1, 1)[:, 1:] == 0
        return cls(depths, is_leaf, donors, kept.tokens.gather(1, donors))

    def continuations(self, kept: TreeDraft, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the borrowed candidates under each node: tokens, scores and possibility, [B, S, count] each.

        Along the last axis each candidate continues the one before; the first continues the node.
        """
        before = F.pad(kept.scores, (1, 0)).gather(1, kept.parents + 1)
        conditional = (kept.scores - before).nan_to_num(-torch.inf).gather(1, self.donors[:, 1:])
        along = F.pad(conditional, (1, 0)).cumsum(1)  # by depth
        reached = self.depths[..., None] + torch.arange(1, count + 1, device=self.depths.device)
        possible = self.is_leaf[..., None] & (reached <= self.depths.amax(1)[:, None, None])
        reached = reached.clamp_max(self.depths.shape[1]).flatten(1)
        more = along.gather(1, reached).view(possible.shape) - along.gather(1, self.depths)[..., None]
        scores = (kept.scores[..., None] + more).nan_to_num(-torch.inf)
        return self.tokens.gather(1, reached).view(possible.shape), scores, possible

    def duplicates(self, draft: TreeDraft, depths: Tensor) -> Tensor:
        """Return which candidate of `continuations` each node that is not kept equals: its number, or -1."""
        size, nodes = self.depths.shape[1], torch.arange(depths.shape[1], device=depths.device)
        count = len(nodes) - size
        goes_on = F.pad(F.pad(self.is_leaf, (1, 0)), (0, count), value=True)  # [B, 1 + N], the root first
        expected = self.tokens.gather(1, depths.clamp_max(size))
        same = (draft.tokens == expected) & (depths <= self.depths.amax(1, keepdim=True))
        same = (same & goes_on.gather(1, draft.parents + 1)) | (nodes < size)
        above = torch.where(nodes < size, nodes, draft.parents.clamp_min(0))
        for _ in range(len(nodes).bit_length()):  # all nodes up to the kept ones, by pointer doubling
            same, above = same & same.gather(1, above), above.gather(1, above)
        number = above * count + depths - depths.gather(1, above) - 1
        return torch.where(same, number, -1)[:, size:]
