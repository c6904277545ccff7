"""Full tree attention (Gumiho paper, section 3.3) that is lossless: shorter paths go on with tokens of longer ones.

The paper's borrowed token keeps the key and value that it has under the path it was drafted on, so what the target says
after it was computed along another text.  Here it is a node of its own under the shorter path, which the target
computes with that path's ancestors and positions: the tree is one as any other, and every rule for trees stays exact.
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
    """Whether so many nodes of a tree can be borrowed.

    Errors: `MTPCError`.
    """
    if not 0 <= count < size:
        raise MTPCError(f"of a draft tree of {size} nodes {count} cannot be borrowed, but 0 to {size - 1} can.")


def borrow_nodes(draft: TreeDraft, count: int) -> TreeDraft:
    """The tree with its last, least probable nodes given up for as many borrowed ones, which then stand last: [B, N].

    draft: the most probable nodes first.  count: less than N.  Among the N - count nodes that are kept, each depth has
    a most probable one, its donor.  A path that ends before the longest goes on with the tokens of the donors of the
    depths that follow, and the ``count`` most probable of all such nodes are taken.  The score of one is that of its
    parent plus the conditional log-probability of its donor: its own where positions are independent of each other,
    an estimate otherwise.  Where fewer can be borrowed, the next best nodes of the tree fill what is left.

    Along no text does the tree accept less than its N - count best nodes alone, since it holds them all.  By the
    drafter's own probabilities it is expected to accept no more than the N that were given: where these are the N
    most probable (see `mtpc.parallel.tree`), borrowing pays as far as the drafter misjudges itself, or draws on
    distributions that were not computed for every path.

    Vectorised over the batch, with shapes that depend on the arguments' alone, and nothing waits for the host.

    Errors: `MTPCError`, see `check_borrowed`.
    """
    check_borrowed(draft.tokens.shape[1], count)
    if not count:
        return draft
    size, depths = draft.tokens.shape[1] - count, node_depths(draft.parents)
    kept, rest = (TreeDraft(*(each[:, part] for each in draft)) for part in (slice(size), slice(size, None)))
    paths = _Paths.of(kept, depths[:, :size])
    tokens, scores, possible = (each.flatten(1) for each in paths.continued(kept, count))  # [B, S count]
    # A stable sort keeps parents, which stand first, before equal children; what is not possible comes last.
    lowest = torch.finfo(scores.dtype).min
    order = scores.clamp_min(lowest).masked_fill(~possible, -torch.inf).sort(dim=1, descending=True, stable=True)
    taken, places = order.indices[:, :count], size + torch.arange(count, device=tokens.device).expand_as(rest.tokens)
    place = torch.zeros_like(tokens).scatter(1, taken, places)  # of each that is taken
    above = torch.where(taken % count == 0, taken // count, place.gather(1, (taken - 1).clamp_min(0)))
    twice = paths.twice(draft, depths)
    usable = torch.cat([possible.gather(1, taken), twice < 0], 1)
    chosen = (~usable).to(torch.int8).sort(dim=1, stable=True).indices[:, :count]
    filled = torch.zeros_like(usable, dtype=torch.int64).scatter(1, chosen, places)[:, count:]  # the places of the rest
    filled = torch.where(twice < 0, filled, place.gather(1, twice.clamp_min(0)))
    under = torch.where(rest.parents < size, rest.parents, filled.gather(1, (rest.parents - size).clamp_min(0)))
    found = TreeDraft(tokens.gather(1, taken), above, scores.gather(1, taken)), rest._replace(parents=under)
    more = (torch.cat(both, 1).gather(1, chosen) for both in zip(*found, strict=True))
    return TreeDraft(*(torch.cat(both, 1) for both in zip(kept, more, strict=True)))


class _Paths(NamedTuple):
    """What the S nodes that are kept go on with.

    depths: int64 [B, S].  is_leaf: bool [B, S].  donors: int64 [B, S + 1], by depth.  tokens: theirs, int64 [B, S + 1].
    """

    depths: Tensor
    is_leaf: Tensor
    donors: Tensor
    tokens: Tensor

    @classmethod
    def of(cls, kept: TreeDraft, depths: Tensor) -> Self:
        """The first node of a depth is its most probable one."""
        root = F.pad(torch.zeros_like(depths), (1, 0))  # [B, S + 1]
        nodes = torch.arange(depths.shape[1], device=depths.device).expand_as(depths)
        donors = root.scatter_reduce(1, depths, nodes, "amin", include_self=False)
        is_leaf = root.scatter(1, kept.parents + 1, 1)[:, 1:] == 0
        return cls(depths, is_leaf, donors, kept.tokens.gather(1, donors))

    def continued(self, kept: TreeDraft, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """What each node could go on with: tokens, scores, and whether it is possible, [B, S, count] each.

        Along the last axis every one continues the one before, the first of them the node.
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

    def twice(self, draft: TreeDraft, depths: Tensor) -> Tensor:
        """Which continuation each node is that is not kept: its number among all that `continued` lists, or -1."""
        size, nodes = self.depths.shape[1], torch.arange(depths.shape[1], device=depths.device)
        count = len(nodes) - size
        goes_on = F.pad(F.pad(self.is_leaf, (1, 0)), (0, count), value=True)  # [B, 1 + N], the root first
        expected = self.tokens.gather(1, depths.clamp_max(size))
        same = (draft.tokens == expected) & (depths <= self.depths.amax(1, keepdim=True))
        same = (same & goes_on.gather(1, draft.parents + 1)) | (nodes < size)
        above = torch.where(nodes < size, nodes, draft.parents.clamp_min(0))
        for _ in range(len(nodes).bit_length()):  # all between it and what is kept; twice as many each time
            same, above = same & same.gather(1, above), above.gather(1, above)
        number = above * count + depths - depths.gather(1, above) - 1
        return torch.where(same, number, -1)[:, size:]
