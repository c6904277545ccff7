"""Speculative decoding of one sequence with tree drafts, as a plain loop, without an engine and without `mtpc.verify`.

As `tests.oracles.decoding`, but the drafts are a tree.  The target judges each prefix of the tree that the walk
reaches by reading the whole text up to it: slow, and without attention masks, positions and cache slots to get wrong.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mtpc.drafter import TreeDraft
from tests.oracles.decoding import Decoded, Target, choose, probabilities
from tests.oracles.trees import Prefix, prefixes_of


class DraftsTrees(Protocol):
    """The part of `mtpc.drafter.Drafter` that decoding with trees needs."""

    def draft_tree(
        self, hidden: Tensor, token: Tensor, temperature: Tensor | None, size: int, max_children: int | None
    ) -> TreeDraft: ...


def decode_with_trees(
    target: Target,
    drafter: DraftsTrees,
    prompt: list[int],
    max_tokens: int,
    size: int,
    temperature: float,
    seed: int = 0,
    max_children: int | None = None,
) -> Decoded:
    """Draft a tree, walk it, repeat.  Temperature 0 is greedy decoding."""
    generator, text, decoded = torch.Generator().manual_seed(seed), list(prompt), Decoded()
    hidden, logits = target(torch.tensor(text))
    state = hidden[-1]  # predicted the token that comes next
    text.append(choose(probabilities(logits[-1], temperature), generator))
    while len(text) - len(prompt) < max_tokens:
        draft = drafter.draft_tree(state[None], text_end(text), torch.tensor([temperature]), size, max_children)
        tree = set(prefixes_of(draft.tokens[0].tolist(), draft.parents[0].tolist()))
        path: Prefix = ()
        while True:
            hidden, logits = target(torch.tensor([*text, *path]))
            state, token = hidden[-1], choose(probabilities(logits[-1], temperature), generator)
            if (*path, token) not in tree:
                break
            path = (*path, token)
        text += [*path, token]
        decoded.accepted.append(len(path))
    decoded.tokens = text[len(prompt) :][:max_tokens]
    return decoded


def text_end(text: list[int]) -> Tensor:
    """The token that the drafts continue, int64 [1]."""
    return torch.tensor(text[-1:])
