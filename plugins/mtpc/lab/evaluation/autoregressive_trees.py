"""Trees of both parts after many positions of a text at once: the autoregressive part reads the text a single time.

All prefixes of some positions' trees are one row of tokens behind the text; a mask lets each attend to the text up to
its own position and to the prefix that it goes on from, which is what it attends to when an engine drafts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.draft import DraftContext, TreeDraft
from mtpc.lab.evaluation.texts import View
from mtpc.methods.drafter import Drafter
from mtpc.methods.reference import truncate_cache
from mtpc.methods.trees import TreeLimits, grow_levels
from mtpc.target_head.shared import SharedHead

NUMBERS = 1 << 25  # of the distributions over tokens of positions whose trees are grown together


def trees_along(
    drafter: Drafter, head: SharedHead, text: View, positions: slice, size: int, limits: TreeLimits, temperature: float
) -> Iterator[TreeDraft]:
    """The trees after these positions of a text, in their order, some at a time.

    positions: each knows its state and the token after it.

    Errors: `MTPCError` where the limits leave no room for so many nodes.
    """
    autoregressive = LayerTrees(drafter, head, text.hidden[: positions.stop], text.tokens[: positions.stop + 1])
    leaves = head.vocab_size if drafter.parallel is None else math.prod(drafter.parallel.leaf_shape)
    together = max(1, NUMBERS // (limits.beams * leaves))
    for start in range(positions.start, positions.stop, together):
        some = torch.arange(start, min(start + together, positions.stop), device=text.tokens.device)
        known = DraftContext.of_target(autoregressive.hidden[some], text.tokens[some + 1])
        heat = torch.full((len(some),), temperature, device=some.device)
        yield grow_levels(drafter, head, known, autoregressive.begin(some), autoregressive.step, limits, heat).tree(
            size
        )


class LayerTrees:
    """The autoregressive part with the keys of a text, and with those of the prefixes of some positions' trees behind them."""

    def __init__(self, drafter: Drafter, head: SharedHead, hidden: Tensor, tokens: Tensor) -> None:
        """hidden: [T, d].  tokens: int64 [T + 1]."""
        assert drafter.autoregressive is not None
        self.layer, self.head = drafter.autoregressive, head
        self.hidden, self.cache = hidden.to(next(drafter.parameters()).dtype), DynamicCache()
        length = len(hidden)
        causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
        self.first = self._run(tokens[1:], self.hidden, torch.arange(length, device=hidden.device), causal)

    def begin(self, positions: Tensor) -> Tensor:
        """The states after the first step at positions int64 [B], after which `step` goes on: [B, d]."""
        truncate_cache(self.cache, len(self.hidden))
        self.positions = positions
        self.seen = torch.arange(len(self.hidden), device=positions.device) <= positions[:, None]  # [rows, keys]
        return self.first[positions]

    def step(self, states: Tensor, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `mtpc.methods.trees.DraftStep`."""
        own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        self.positions = self.positions[rows] + 1
        self.seen = torch.cat([self.seen[rows], own], 1)
        return self._run(tokens, states, self.positions, self.seen)

    def _run(self, tokens: Tensor, states: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        embeddings = self.head.embed(tokens).to(states.dtype)
        out: Tensor = self.layer(embeddings[None], states[None], positions[None], seen[None, None], self.cache)[0]
        return out
