"""Acceptance of draft trees along text that the target generated.

Tree verification emits the tokens that the target samples. Along a given text, the accepted draft tokens are thus the
longest prefix of the following text that is a path of the tree, at any temperature. The closed form of
`mtpc.lab.evaluation.acceptance` applies with probabilities 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draft import DraftContext, TreeDraft
from mtpc.lab.evaluation.texts import TextFeatures
from mtpc.methods.drafter import Drafter
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead
from mtpc.verify import PADDING, node_depths
from mtpc.verify.tree import follow_choices

DEFAULT_BEAMS = 10  # as in EAGLE-2


class TreeSettings(NamedTuple):
    """Draft trees to evaluate.

    Attributes:
        sizes: Numbers of nodes.
        borrowed: Numbers of additional borrowed nodes, see `mtpc.parallel.borrow`. Trees without them are evaluated
            too.
        max_children: Most children of a node. For drafters with an autoregressive part it is also the number of
            prefixes that each level continues. None allows any number, and continues `DEFAULT_BEAMS` prefixes.
    """

    sizes: Sequence[int] = ()
    borrowed: Sequence[int] = ()
    max_children: int | None = None

    def titles(self) -> Iterator[tuple[str, int, int]]:
        """Yield the title of each tree, its nodes, and how many of them are borrowed."""
        for size in self.sizes:
            yield f"tree of {size}", size, 0
            yield from ((f"tree of {size} + {count} borrowed", size + count, count) for count in self.borrowed)

    @property
    def largest(self) -> int:
        """Nodes of the largest tree, which contains all others."""
        return max(nodes for _, nodes, _ in self.titles())


NO_TREES = TreeSettings()


def check_trees(drafter: Drafter, head: SharedHead, trees: TreeSettings, depth: int) -> None:
    """Check that a drafter supports the trees, by drafting one.

    Args:
        drafter: Drafter on the target's device.
        head: Output head of the target.
        trees: Trees to check.
        depth: Tokens K of one path.

    Raises:
        MTPCError: The drafter does not support such trees.
    """
    if trees.sizes:
        hidden = torch.zeros(2, drafter.config.hidden_size, device=head.rows.device)
        text = TextFeatures(torch.zeros(2 + depth, dtype=torch.int64, device=hidden.device), hidden, hidden, 2)
        drafts_along(drafter, head, text, slice(1, 2), trees, 1.0, depth)


@torch.inference_mode()
def tree_acceptance(
    drafter: Drafter, head: SharedHead, text: TextFeatures, trees: TreeSettings, temperature: float, depth: int
) -> dict[str, Tensor]:
    """Return the acceptance of draft trees along a text.

    Only the largest trees are drafted. Nodes are sorted by probability, so the first nodes form the smaller trees.

    Args:
        drafter: Drafter on the target's device.
        head: Output head of the target.
        text: Text with the target's features.
        trees: Trees to evaluate.
        temperature: Temperature of drafter and text; 0 is greedy.
        depth: Tokens K of one path.

    Returns:
        Acceptance of each draft token, 0 or 1, float64 [L', K], by title of the tree.
    """
    positions, following = text.steps(depth)
    if not trees.sizes or not len(following):
        return {title: torch.zeros(0, depth, dtype=torch.float64) for title, _, _ in trees.titles()}
    draft = drafts_along(drafter, head, text, positions, trees, temperature, depth)
    accept = {}
    for title, nodes, count in trees.titles():
        tree = TreeDraft(*(each[:, :nodes] for each in draft))
        accept[title] = matches(borrow_nodes(tree, count) if count else tree, following[:, 1:]).double().cpu()
    return accept


def drafts_along(
    drafter: Drafter,
    head: SharedHead,
    text: TextFeatures,
    positions: slice,
    trees: TreeSettings,
    temperature: float,
    depth: int,
) -> TreeDraft:
    """Return the largest trees after a range of positions of a text.

    Raises:
        MTPCError: The drafter does not support such trees.
    """
    size = trees.largest
    if not drafter.split(depth)[0]:
        assert drafter.parallel is not None  # a drafter has a part
        hidden = text.hidden[positions].to(next(drafter.parameters()).dtype)
        context = DraftContext.of_target(hidden, text.tokens[1:][positions])
        if drafter.parallel.reads_head:
            context = with_head_inputs(context, None, head)
        temperatures = torch.full((len(hidden),), temperature, device=hidden.device)
        return drafter.parallel.draft_tree(context, temperatures, size, trees.max_children, depth=depth)
    from mtpc.lab.evaluation.autoregressive_trees import trees_along
    from mtpc.methods.trees import TreeLimits

    limits = TreeLimits.of(size, depth, trees.max_children or min(DEFAULT_BEAMS, size))
    parts = list(trees_along(drafter, head, text, positions, size, limits, temperature))
    return TreeDraft(*(torch.cat(part) for part in zip(*parts, strict=True)))


def matches(draft: TreeDraft, text: Tensor) -> Tensor:
    """Return whether each prefix of the text is a path of the tree: text int64 [B, K] -> bool [B, K]."""
    depths = F.pad(node_depths(draft.parents), (1, 0))  # [B, N + 1], 0 at the root
    chosen = F.pad(text, (0, 1), value=PADDING).gather(1, depths)  # [B, N + 1], the text's token at each node's depth
    accepted = follow_choices(draft.tokens, draft.parents, chosen).accepted
    return torch.arange(text.shape[1], device=text.device) < accepted[:, None]
