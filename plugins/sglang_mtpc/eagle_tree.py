"""Trees of an autoregressive part alone that borrow nodes or are left out where they do not pay: the core makes them.

SGLang's draft loop finds the candidates, but returns no probabilities of its tree, which both need. So `organized`
stands in the place of what makes the tree of them.
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
    """Put `organized` in the place of SGLang's."""
    put_around(HOOKED, organized)


def organized(
    original: Any,
    score_list: list[Tensor],
    token_list: list[Tensor],
    parents_list: list[Tensor],
    num_draft_token: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """What SGLang's loop returns then: parents, scores and tokens of a `TreeDraft`, [B, N] each."""
    levels = levels_of(score_list, token_list, parents_list)
    tree = borrow_nodes(best_nodes(levels, num_draft_token - 1), served.shape().borrowed)
    return tree.parents, tree.scores, tree.tokens


def levels_of(scores: Sequence[Tensor], tokens: Sequence[Tensor], parents: Sequence[Tensor]) -> list[Level]:
    """The loop's candidates as the core has them.

    scores: probabilities of each level's prefixes, [B, 1, k], then [B, k, k].  tokens: int64 [B, k], then [B, k k].
    parents: of each level, the k candidates that the loop goes on from, last, numbered through all levels.
    """
    children = tokens[0].shape[1]
    levels = [Level(tokens[0], torch.zeros_like(tokens[0]), scores[0].flatten(1).log())]
    first = 0  # of the level above, among all candidates
    for score, token, above in zip(scores[1:], tokens[1:], parents, strict=False):
        places = (above[:, -children:] - first).repeat_interleave(children, 1)
        first += levels[-1].tokens.shape[1]
        levels.append(Level(token, places, score.flatten(1).log()))
    return levels
