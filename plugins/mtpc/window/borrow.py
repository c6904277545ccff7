"""Full tree attention (Gumiho paper, section 3.3) that is lossless: shorter paths go on with tokens of longer ones.

The paper's borrowed token keeps the key and value that it has under the path it was drafted on, so what the target says
after it was computed along another text.  Here it is a node of its own under the shorter path, which the target
computes with that path's ancestors and positions: the tree is one as any other, and every rule for trees stays exact.
"""

from __future__ import annotations

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


def borrowed(draft: TreeDraft, count: int) -> TreeDraft:
    """The tree with its last, least probable nodes given up for as many borrowed ones, which then stand last: [B, N].

    draft: the most probable nodes first.  count: less than N.  Among the N - count nodes that are kept, each depth has
    a most probable one, its donor.  A path that ends before the longest goes on with the tokens of the donors of the
    depths that follow, and the ``count`` most probable of all such nodes are taken.  The score of one is that of its
    parent plus the conditional log-probability of its donor: its own where positions are independent of each other,
    an estimate otherwise.  A row in which fewer can be borrowed keeps the nodes that it has.

    Along no text does the tree accept less than its N - count best nodes alone, since it holds them all.  By the
    drafter's own probabilities it is expected to accept no more than the N that were given: where these are the N
    most probable (see `mtpc.window.tree`), borrowing pays as far as the drafter misjudges itself, or draws on
    distributions that were not computed for every path.

    Vectorised over the batch, with shapes that depend on the arguments' alone, and nothing waits for the host.

    Errors: `MTPCError`, see `check_borrowed`.
    """
    check_borrowed(draft.tokens.shape[1], count)
    if not count:
        return draft
    kept = TreeDraft(*(each[:, :-count] for each in draft))
    tokens, scores, possible = (each.flatten(1) for each in _continuations(kept, count))  # [B, S count]
    # A stable sort keeps parents, which stand first, before equal children; what is not possible comes last.
    lowest = torch.finfo(scores.dtype).min
    order = scores.clamp_min(lowest).masked_fill(~possible, -torch.inf).sort(dim=1, descending=True, stable=True)
    taken = order.indices[:, :count]
    place = torch.arange(count, device=taken.device) + kept.tokens.shape[1]
    places = torch.zeros_like(tokens).scatter(1, taken, place.expand_as(taken))
    above = torch.where(taken % count == 0, taken // count, places.gather(1, (taken - 1).clamp_min(0)))
    more = TreeDraft(tokens.gather(1, taken), above, scores.gather(1, taken))
    enough = possible.sum(1, keepdim=True) >= count
    grown = (torch.cat(both, 1) for both in zip(kept, more, strict=True))
    return TreeDraft(*(torch.where(enough, *both) for both in zip(grown, draft, strict=True)))


def _continuations(kept: TreeDraft, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """What each node could go on with: tokens, scores, and whether it is possible, [B, S, count] each.

    Along the last axis every one continues the one before, the first of them the node.
    """
    tokens, parents, scores = kept
    depths, nodes = node_depths(parents), torch.arange(tokens.shape[1], device=tokens.device)
    root = F.pad(torch.zeros_like(tokens), (1, 0))  # [B, S + 1], by depth
    donors = root.scatter_reduce(1, depths, nodes.expand_as(depths), "amin", include_self=False)
    conditional = (scores - F.pad(scores, (1, 0)).gather(1, parents + 1)).nan_to_num(-torch.inf)
    along = F.pad(conditional.gather(1, donors[:, 1:]), (1, 0)).cumsum(1)
    is_leaf = root.scatter(1, parents + 1, 1)[:, 1:] == 0
    reached = depths[..., None] + torch.arange(1, count + 1, device=tokens.device)
    possible = is_leaf[..., None] & (reached <= depths.amax(1)[:, None, None])
    reached = reached.clamp_max(len(nodes)).flatten(1)
    found = tokens.gather(1, donors.gather(1, reached)).view(possible.shape)
    more = along.gather(1, reached).view(possible.shape) - along.gather(1, depths)[..., None]
    return found, (scores[..., None] + more).nan_to_num(-torch.inf), possible
