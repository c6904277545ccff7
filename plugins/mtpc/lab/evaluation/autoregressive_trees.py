"""Draft trees after many positions of a text at once, with a single pass of the autoregressive part over the text.

The prefixes of several positions' trees follow the text in one sequence. A mask restricts each of them to the text up
to its position and to the prefix that it continues, as in an engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DynamicCache

from mtpc.draft import DraftContext, TreeDraft
from mtpc.lab.evaluation.reference import truncate_cache
from mtpc.lab.evaluation.texts import TextFeatures
from mtpc.methods.drafter import Drafter
from mtpc.methods.trees import TreeLimits, grow_levels
from mtpc.target_head.shared import SharedHead

MAX_PROBABILITIES = 1 << 25  # numbers in the distributions of positions whose trees are grown together


def trees_along(
    drafter: Drafter,
    head: SharedHead,
    text: TextFeatures,
    positions: slice,
    size: int,
    limits: TreeLimits,
    temperature: float,
) -> Iterator[TreeDraft]:
    """Yield the trees after a range of positions, in order, a batch of positions at a time.

    Args:
        drafter: Drafter with an autoregressive part.
        head: Output head of the target, or its rows of a draft vocabulary.
        text: Text with the target's features.
        positions: Positions t. A step after t reads h_t and x_{t+1}.
        size: Nodes of each tree.
        limits: Beams, depth and children of the trees.
        temperature: Temperature of the drafter; 0 is greedy.

    Yields:
        Trees of a batch of positions.

    Raises:
        MTPCError: The limits do not allow ``size`` nodes.
    """
    layers = LayerTrees(drafter, head, text.hidden[: positions.stop], text.tokens[: positions.stop + 1])
    leaves = head.vocab_size if drafter.parallel is None else math.prod(drafter.parallel.leaf_shape)
    batch = max(1, MAX_PROBABILITIES // (limits.beams * leaves))
    for start in range(positions.start, positions.stop, batch):
        chosen = torch.arange(start, min(start + batch, positions.stop), device=text.tokens.device)
        context = DraftContext.of_target(layers.hidden[chosen], text.tokens[chosen + 1])
        temperatures = torch.full((len(chosen),), temperature, device=chosen.device)
        yield grow_levels(drafter, head, context, layers.begin(chosen), layers.step, limits, temperatures).tree(size)


class LayerTrees:
    """Autoregressive part with cached keys of a text, followed by those of tree prefixes.

    The constructor runs the first step at every position. ``begin`` selects positions and drops the prefixes of earlier
    ones; each ``step`` then adds one level of prefixes.

    Args:
        drafter: Drafter with an autoregressive part.
        head: Output head of the target, or its rows of a draft vocabulary.
        hidden: Hidden states of the target, [T, d].
        tokens: Tokens of the text, int64 [T + 1].
    """

    def __init__(self, drafter: Drafter, head: SharedHead, hidden: Tensor, tokens: Tensor) -> None:
        assert drafter.autoregressive is not None
        self.layer, self.head = drafter.autoregressive, head
        self.hidden, self.cache = hidden.to(next(drafter.parameters()).dtype), DynamicCache()
        length = len(hidden)
        causal = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
        self.first = self._run(tokens[1:], self.hidden, torch.arange(length, device=hidden.device), causal)

    def begin(self, positions: Tensor) -> Tensor:
        """Return the states after the first step at positions int64 [B], [B, d], and start their trees."""
        truncate_cache(self.cache, len(self.hidden))
        self.positions = positions
        self.mask = torch.arange(len(self.hidden), device=positions.device) <= positions[:, None]  # [rows, keys]
        return self.first[positions]

    def step(self, states: Tensor, tokens: Tensor, rows: Tensor) -> Tensor:
        """Extend prefixes by one token each; see `mtpc.methods.trees.DraftStep`."""
        self_mask = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        self.positions = self.positions[rows] + 1
        self.mask = torch.cat([self.mask[rows], self_mask], 1)
        return self._run(tokens, states, self.positions, self.mask)

    def _run(self, tokens: Tensor, states: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        embeddings = self.head.embed(tokens).to(states.dtype)
        out: Tensor = self.layer(embeddings[None], states[None], positions[None], mask[None, None], self.cache)[0]
        return out
