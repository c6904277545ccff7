"""Draft trees of an autoregressive part alone, with borrowed nodes or adaptive draft length.

Both need the probabilities of the tree, which SGLang's draft loop does not return.  A replacement of SGLang's
``organize_draft_results`` therefore makes the tree with the core, from the loop's candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.tree import Level, best_nodes
from sglang_mtpc import served
from sglang_mtpc.hooks import put_around

HOOKED = "sglang.srt.speculative.eagle_worker_v2.organize_draft_results"


def install() -> None:
    """Replace SGLang's function by `organize_draft_results`."""
    put_around(HOOKED, organize_draft_results)


def organize_draft_results(
    original: Any,
    score_list: list[Tensor],
    token_list: list[Tensor],
    parents_list: list[Tensor],
    num_draft_token: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Select the most probable nodes of SGLang's candidates, some of them borrowed.

    Args:
        original: SGLang's function, not used.
        score_list: As for `levels_of`.
        token_list: As for `levels_of`.
        parents_list: As for `levels_of`.
        num_draft_token: Nodes of the tree, root included.

    Returns:
        Parents, scores and tokens of a `TreeDraft`, [B, N] each.  SGLang's loop returns them unchanged.
    """
    levels = levels_of(score_list, token_list, parents_list)
    tree = borrow_nodes(best_nodes(levels, num_draft_token - 1), served.shape().borrowed)
    return tree.parents, tree.scores, tree.tokens


def levels_of(scores: Sequence[Tensor], tokens: Sequence[Tensor], parents: Sequence[Tensor]) -> list[Level]:
    """Convert the candidates of SGLang's loop to levels of a tree.

    Args:
        scores: Probabilities of each level's prefixes, [B, 1, k] for the first level, then [B, k, k].
        tokens: int64 [B, k] for the first level, then [B, k k].
        parents: For each level, last the k candidates that the loop continues, numbered through all levels.

    Returns:
        One `Level` for each level of the loop.
    """
    children = tokens[0].shape[1]
    levels = [Level(tokens[0], torch.zeros_like(tokens[0]), scores[0].flatten(1).log())]
    first = 0  # number of the first candidate of the level above
    for score, token, above in zip(scores[1:], tokens[1:], parents, strict=False):
        rows = (above[:, -children:] - first).repeat_interleave(children, 1)
        first += levels[-1].tokens.shape[1]
        levels.append(Level(token, rows, score.flatten(1).log()))
    return levels
