"""Acceptance of draft trees along text that the target wrote.

Tree verification emits the target's own choices, so along a given text the accepted drafts are the longest beginning
of what follows that is a path of the tree: a certainty, at any temperature.  The closed form of chains (see
`mtpc.lab.evaluation.acceptance`) then applies with probabilities 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draft import DraftContext, TreeDraft
from mtpc.lab.evaluation.texts import View
from mtpc.methods.drafter import Drafter
from mtpc.parallel.borrow import borrow_nodes
from mtpc.target_head.shared import SharedHead
from mtpc.verify import PADDING, node_depths
from mtpc.verify.tree import follow_choices

BEAMS = 10  # EAGLE-2's


class Trees(NamedTuple):
    """What trees are scored.

    sizes: numbers of nodes.  borrowed: of nodes that trees have beside these, borrowed from their longer paths (see
    `mtpc.parallel.borrow`); trees without are scored as well.  max_children: of a node; None: any number.
    Behind an autoregressive part it is also how many prefixes of each level that goes on from, and None is `BEAMS`.
    """

    sizes: Sequence[int] = ()
    borrowed: Sequence[int] = ()
    max_children: int | None = None

    def titles(self) -> Iterator[tuple[str, int, int]]:
        """Of each tree, with its nodes and how many of them are borrowed."""
        for size in self.sizes:
            yield f"tree of {size}", size, 0
            yield from ((f"tree of {size} + {count} borrowed", size + count, count) for count in self.borrowed)

    @property
    def largest(self) -> int:
        """Nodes of the tree that all others are made of."""
        return max(nodes for _, nodes, _ in self.titles())


NO_TREES = Trees()


def check_trees(drafter: Drafter, head: SharedHead, trees: Trees, depth: int) -> None:
    """Grow one tree, after nothing.

    Errors: `MTPCError` for a drafter that grows no such trees.
    """
    if trees.sizes:
        hidden = torch.zeros(2, drafter.config.hidden_size, device=head.rows.device)
        text = View(torch.zeros(2 + depth, dtype=torch.int64, device=hidden.device), hidden, hidden, 2)
        drafts_along(drafter, head, text, slice(1, 2), trees, 1.0, depth)


@torch.inference_mode()
def tree_acceptance(
    drafter: Drafter, head: SharedHead, text: View, trees: Trees, temperature: float, depth: int
) -> dict[str, Tensor]:
    """Whether each draft is accepted, by the title of the trees, as in `mtpc.lab.evaluation.scorer`: float64 [L', K].

    The drafter and the text are at the same temperature.  depth: K, tokens of one path.  Only the largest trees are
    drafted: nodes come in the order of their probability, so the first ones of a tree are the smaller tree.
    """
    positions, following = text.steps(depth)
    if not trees.sizes or not len(following):
        return {title: torch.zeros(0, depth, dtype=torch.float64) for title, _, _ in trees.titles()}
    draft = drafts_along(drafter, head, text, positions, trees, temperature, depth)
    found = {}
    for title, nodes, count in trees.titles():
        tree = TreeDraft(*(each[:, :nodes] for each in draft))
        found[title] = matches(borrow_nodes(tree, count) if count else tree, following[:, 1:]).double().cpu()
    return found


def drafts_along(
    drafter: Drafter, head: SharedHead, text: View, positions: slice, trees: Trees, temperature: float, depth: int
) -> TreeDraft:
    """The largest trees after these positions of a text, each of which knows the token after it.

    Errors: `MTPCError` for a drafter that grows no such trees.
    """
    size = trees.largest
    if drafter.autoregressive is None:
        assert drafter.parallel is not None  # a drafter has a part
        hidden = text.hidden[positions].to(next(drafter.parameters()).dtype)
        known = DraftContext.of_target(hidden, text.tokens[1:][positions])
        heat = torch.full((len(hidden),), temperature, device=hidden.device)
        return drafter.parallel.draft_tree(known, heat, size, trees.max_children, depth=depth)
    from mtpc.lab.evaluation.autoregressive_trees import trees_along
    from mtpc.methods.trees import TreeLimits

    limits = TreeLimits.of(size, depth, trees.max_children or min(BEAMS, size))
    parts = list(trees_along(drafter, head, text, positions, size, limits, temperature))
    return TreeDraft(*(torch.cat(part) for part in zip(*parts, strict=True)))


def matches(draft: TreeDraft, text: Tensor) -> Tensor:
    """Whether each leading part of the text is in the tree: text int64 [B, K] -> bool [B, K]."""
    depths = F.pad(node_depths(draft.parents), (1, 0))  # [B, N + 1], 0 at the root
    chosen = F.pad(text, (0, 1), value=PADDING).gather(1, depths)  # the text's token at every node of a depth
    accepted = follow_choices(draft.tokens, draft.parents, chosen).accepted
    return torch.arange(text.shape[1], device=text.device) < accepted[:, None]
