"""Acceptance of draft trees along text that the target wrote.

Tree verification emits the target's own choices, so along a given text the accepted drafts are the longest beginning
of what follows that is a path of the tree: a certainty, at any temperature.  The closed form of chains (see
`mtpc.evaluation.acceptance`) then applies with probabilities 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from mtpc.draft import Known, TreeDraft
from mtpc.errors import MTPCError
from mtpc.evaluation.texts import View
from mtpc.families.drafter import Drafter
from mtpc.verify import PADDING, node_depths
from mtpc.verify.tree import follow
from mtpc.window.part import WindowPart
from mtpc.window.tree import level_widths


def window_of_trees(name: str, drafter: Drafter, sizes: Sequence[int], max_children: int | None) -> WindowPart:
    """The window that grows trees of these sizes.

    Errors: `MTPCError` for a drafter whose serial part comes first, or where a size is not positive or does not fit
    (see `mtpc.window.tree.level_widths`).
    """
    if drafter.window is None or drafter.config.serial_steps:
        raise MTPCError(f"{name} has a serial part, but only trees of a window alone are scored.")
    for size in sizes:
        level_widths(size, drafter.window.max_drafts, drafter.window.vocab_size, max_children)
    return drafter.window


@torch.inference_mode()
def tree_acceptance(
    window: WindowPart, text: View, sizes: Sequence[int], temperature: float, max_children: int | None = None
) -> dict[int, Tensor]:
    """Whether each draft is accepted, for trees of each size, as in `mtpc.evaluation.scorer`: float64 [L', K].

    The drafter and the text are at the same temperature.  Only the largest trees are drafted: nodes come in the order
    of their probability, so the first ones of a tree are the smaller tree.
    """
    positions, following = text.steps(window.max_drafts)
    if not len(following):
        return {size: torch.zeros(0, window.max_drafts, dtype=torch.float64) for size in sizes}
    hidden = text.hidden[positions].to(next(window.parameters()).dtype)
    heat = torch.full((len(hidden),), temperature, device=hidden.device)
    draft = window.draft_tree(Known.of_target(hidden, following[:, 0]), heat, max(sizes), max_children)
    smaller = {size: TreeDraft(*(nodes[:, :size] for nodes in draft)) for size in sizes}
    return {size: matches(tree, following[:, 1:]).double().cpu() for size, tree in smaller.items()}


def matches(draft: TreeDraft, text: Tensor) -> Tensor:
    """Whether each leading part of the text is in the tree: text int64 [B, K] -> bool [B, K]."""
    depths = F.pad(node_depths(draft.parents), (1, 0))  # [B, N + 1], 0 at the root
    chosen = F.pad(text, (0, 1), value=PADDING).gather(1, depths)  # the text's token at every node of a depth
    accepted = follow(draft.tokens, draft.parents, chosen).accepted
    return torch.arange(text.shape[1], device=text.device) < accepted[:, None]
