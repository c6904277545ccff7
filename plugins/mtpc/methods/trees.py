"""Draft trees of both parts, level by level; the caller keeps the autoregressive part's KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.draw import at_temperature
from mtpc.methods.drafter import Drafter
from mtpc.parallel.beams import BeamTree
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead

# One more draft step of k prefixes of each text. Arguments: their states [B k, d], their last tokens int64 [B k], and
# the row of the previous step that each continues, int64 [B k]. Result: the states after the step, [B k, d].
DraftStep = Callable[[Tensor, Tensor, Tensor], Tensor]


class TreeLimits(NamedTuple):
    """Limits of a draft tree.

    Attributes:
        depth: Most tokens of one path.
        beams: Prefixes of a level that the autoregressive part continues, and most children of a node.
        nodes: Nodes that are kept of each level of the parallel part.
    """

    depth: int
    beams: int
    nodes: int

    @classmethod
    def of(cls, size: int, depth: int, max_children: int | None) -> Self:
        """Return limits as wide as a tree of ``size`` nodes can use, where ``max_children`` is None."""
        return cls(min(size, depth), max_children or size, size)


def grow_levels(
    drafter: Drafter,
    head: SharedHead,
    context: DraftContext,
    states: Tensor,
    step: DraftStep,
    limits: TreeLimits,
    temperature: Tensor | None,
) -> BeamTree:
    """Grow the levels of a tree after each of B texts: the autoregressive part's, then the parallel part's.

    Args:
        drafter: With an autoregressive part.
        head: The embedding and output head that it drafts with.
        context: The context without an autoregressive part, see `DraftContext.of_target`.
        states: After the first draft step, [B, d].
        step: Runs a further draft step, see `DraftStep`.
        limits: Depth and width.
        temperature: [B]; 0, or None for all, counts as 1: only the order of the probabilities counts.

    Returns:
        The levels; `BeamTree.tree` chooses the nodes.
    """
    autoregressive, depth = drafter.split(limits.depth)
    requests, beams = len(states), min(limits.beams, len(head.rows))
    if temperature is not None:
        temperature = temperature.masked_fill(temperature <= 0, 1.0)
    growth, rows = None, torch.arange(requests, device=states.device)
    for _ in range(autoregressive):
        if growth is not None:
            states = step(states, context.tokens[:, -1], rows)
        log_q = at_temperature(head.logits(states), _of_rows(temperature, states)).log()
        if growth is None:
            growth = BeamTree.begin(log_q, beams, head)
        else:
            growth = growth.with_level(log_q.unflatten(0, (requests, -1)), beams, head)
        before = len(states) // requests
        rows = (growth.beams.parents + before * torch.arange(requests, device=states.device)[:, None]).flatten()
        states = states[rows]
        tokens = torch.cat([context.tokens[rows], growth.beams.tokens.view(-1, 1)], 1)
        context = DraftContext(torch.cat([context.states[rows], states[:, None].to(context.states.dtype)], 1), tokens)
    assert growth is not None  # a drafter with an autoregressive part drafts one token with it at least
    if not depth:
        return growth
    assert drafter.parallel is not None
    if drafter.parallel.reads_head:
        context = with_head_inputs(context, drafter.autoregressive, head)
    beam_temperature = _of_rows(temperature, states)
    return drafter.parallel.extend_tree(growth, context, beam_temperature, depth, limits.beams, limits.nodes)


def _of_rows(temperature: Tensor | None, rows: Tensor) -> Tensor | None:
    """Repeat each text's temperature for its beams."""
    return None if temperature is None else temperature.repeat_interleave(len(rows) // len(temperature))
