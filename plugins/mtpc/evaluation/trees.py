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

from mtpc.drafter import Drafter, TreeDraft
from mtpc.evaluation.acceptance import decode_acceptance
from mtpc.evaluation.continuations import Continuations
from mtpc.verify import PADDING, Rates, node_depths
from mtpc.verify.tree import follow


@torch.inference_mode()
def evaluate_trees(
    drafter: Drafter, texts: Continuations, sizes: Sequence[int], max_children: int | None = None
) -> dict[int, Rates]:
    """Acceptance by depth of trees of each size; the drafter and the text are at the same temperature.

    Only the largest trees are drafted: nodes come in the order of their probability, so the first ones of a tree are
    the smaller tree.

    Errors: `MTPCError` where a size is not positive or does not fit (see `mtpc.drafter.tree.level_widths`).
    """
    if not sizes:
        return {}
    drafter = drafter.to("cpu", torch.float32)
    accepted: dict[int, list[Tensor]] = {size: [] for size in sizes}
    for hidden, windows in texts.steps(drafter.config.window):
        temperature = torch.full((len(windows),), texts.temperature)
        draft = drafter.draft_tree(hidden, windows[:, 0], temperature, max(sizes), max_children)
        for size, rows in accepted.items():
            rows.append(matches(TreeDraft(*(each[:, :size] for each in draft)), windows[:, 1:]))
    return {size: decode_acceptance(torch.stack(rows).double()) for size, rows in accepted.items()}


def matches(draft: TreeDraft, text: Tensor) -> Tensor:
    """Whether each leading part of the text is in the tree: text int64 [B, K] -> bool [B, K]."""
    depths = F.pad(node_depths(draft.parents), (1, 0))  # [B, N + 1], 0 at the root
    chosen = F.pad(text, (0, 1), value=PADDING).gather(1, depths)  # the text's token at every node of a depth
    accepted = follow(draft.tokens, draft.parents, chosen).accepted
    return torch.arange(text.shape[1], device=text.device) < accepted[:, None]
