"""Trees of both parts of a drafter: beams of the autoregressive part, and under each of the last the window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import DraftContext, TreeDraft
from mtpc.draw import at_temperature
from mtpc.parallel.beams import Beams, BeamTree
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.part import ParallelPart
from sglang_mtpc.shape import Shape
from sglang_mtpc.step import Step


def draft_tree(
    draft_input: Any,
    step: Step,
    shape: Shape,
    model: Any,
    parallel: ParallelPart,
    again: Callable[[Beams, Tensor], Tensor] | None,
    lap: Callable[[str], None],
) -> TreeDraft:
    """The most probable nodes of the drafter, after no more than `sglang_mtpc.shape.DRAFT_STEPS` draft steps, [B, N].

    As many of them as the shape says are borrowed.

    draft_input: SGLang's ``EagleDraftInput``, with the target's states beside the layers', [B, 2 d].  model: the
    `DraftLayersModel`.  again: one more pass of the layers, from k beams of each request and the states before, [B, d], to
    those after, [B k, d]; None: there is one draft step.  lap: told of each part once it is done, see `DraftClock`.
    """
    own, first = draft_input.hidden_states.chunk(2, -1)
    requests = len(own)
    head, heat = model.head(requests), step.temperature.masked_fill(step.temperature == 0, 1.0)
    growth = BeamTree.begin(at_temperature(head.logits(first), heat).log(), shape.children, head)
    known = DraftContext(torch.stack([own, first.to(own.dtype)], 1), draft_input.bonus_tokens[:, None].long())
    steps, known = 1, _gone_on(known, growth.beams, None)
    lap("tree")
    if again is not None:
        states = again(growth.beams, first)  # [B k, d]
        log_q = at_temperature(head.logits(states), _of_rows(heat, states)).log()
        growth = growth.with_level(log_q.unflatten(0, (requests, -1)), shape.children, head)
        steps, known = 2, _gone_on(known, growth.beams, states)
        lap("tree")
    if parallel.reads_autoregressive:
        known = model.completed(known, requests)
    heat, rest = _of_rows(heat, known.tokens), shape.depth - steps
    growth = parallel.extend_tree(growth, known, heat, rest, shape.children, shape.nodes)
    lap("parallel")
    tree = borrow_nodes(growth.tree(shape.nodes), shape.borrowed)
    lap("tree")
    return tree


def _gone_on(known: DraftContext, beams: Beams, states: Tensor | None) -> DraftContext:
    """What is known under each beam, a row for each.

    known: the same of the beams before.  states: the layers' that predicted their tokens, of the beams before; None:
    they are there already.
    """
    requests = len(beams.tokens)
    before = len(known.tokens) // requests
    first = before * torch.arange(requests, device=beams.parents.device)
    rows = (beams.parents + first[:, None]).flatten()
    tokens = torch.cat([known.tokens[rows], beams.tokens.view(-1, 1)], 1)
    found = known.states[rows]
    if states is not None:
        found = torch.cat([found, states[rows, None].to(found.dtype)], 1)
    return DraftContext(found, tokens)


def _of_rows(temperature: Tensor, rows: Tensor) -> Tensor:
    """Of each row, as many for each request: [B] -> [rows]."""
    return temperature.repeat_interleave(len(rows) // len(temperature))
