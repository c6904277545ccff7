"""Trees of both parts of a drafter, level by level, whoever keeps what the autoregressive part has read."""

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

# One more step of the autoregressive part: the states [B k, d] of k prefixes of each text, their last tokens int64 [B k], and
# which of the rows of the step before each goes on from, int64 [B k] -> the states after it, [B k, d].
DraftStep = Callable[[Tensor, Tensor, Tensor], Tensor]


class TreeLimits(NamedTuple):
    """Of a tree.  depth: tokens of one path.

    beams: prefixes of a level that the autoregressive part goes on from, and children of a node.  nodes: of a level of the
    window that are kept.
    """

    depth: int
    beams: int
    nodes: int

    @classmethod
    def of(cls, size: int, depth: int, max_children: int | None) -> Self:
        """As wide as a tree of ``size`` nodes can use where nothing is said."""
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
    """The levels of a tree after each of B texts: those of the autoregressive part, and under its last beams the window's.

    known: what is without an autoregressive part, see `DraftContext.of_target`.  states: after the first draft step, [B, d].
    temperature: [B], at 0 and where it is None 1: only the order of the probabilities counts.
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
    assert drafter.autoregressive is not None and drafter.parallel is not None
    if drafter.parallel.reads_autoregressive:
        context = with_head_inputs(context, drafter.autoregressive, head)
    heat = _of_rows(temperature, states)
    return drafter.parallel.extend_tree(growth, context, heat, depth, limits.beams, limits.nodes)


def _of_rows(temperature: Tensor | None, rows: Tensor) -> Tensor | None:
    """Of each row, as many for each text."""
    return None if temperature is None else temperature.repeat_interleave(len(rows) // len(temperature))
