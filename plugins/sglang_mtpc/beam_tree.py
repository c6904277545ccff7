"""Draft trees of both parts of a drafter: beams of the autoregressive part, each continued by the parallel part."""

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
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchStep


def draft_tree(
    draft_input: Any,
    step: BatchStep,
    shape: DraftShape,
    model: Any,
    parallel: ParallelPart,
    next_pass: Callable[[Beams, Tensor], Tensor] | None,
    lap: Callable[[str], None],
) -> TreeDraft:
    """Draft the most probable nodes of both parts, some of them borrowed (`DraftShape.borrowed`).

    Args:
        draft_input: SGLang's ``EagleDraftInput``, whose hidden states [B, 2 d] are the target's and the draft layers'.
        step: The decoding step.
        shape: Shape of the tree.
        model: The `DraftLayersModel`.
        parallel: The parallel part.
        next_pass: Makes the second draft step: from k beams of each request and the layers' states [B, d] to the
            layers' states after the beams, [B k, d].  None: the autoregressive part has one draft step.
        lap: Called after each part of drafting, see `DraftClock`.

    Returns:
        Trees of N nodes for B requests, [B, N].
    """
    target, first = draft_input.hidden_states.chunk(2, -1)
    requests = len(target)
    head, temperature = model.head(requests), step.temperature.masked_fill(step.temperature == 0, 1.0)
    growth = BeamTree.begin(at_temperature(head.logits(first), temperature).log(), shape.children, head)
    known = DraftContext(torch.stack([target, first.to(target.dtype)], 1), draft_input.bonus_tokens[:, None].long())
    steps, known = 1, _extend_context(known, growth.beams, None)
    lap("tree")
    if next_pass is not None:
        states = next_pass(growth.beams, first)  # [B k, d]
        log_q = at_temperature(head.logits(states), _per_row(temperature, states)).log()
        growth = growth.with_level(log_q.unflatten(0, (requests, -1)), shape.children, head)
        steps, known = 2, _extend_context(known, growth.beams, states)
        lap("tree")
    if parallel.reads_head:
        known = model.with_head_inputs(known, requests)
    temperature, rest = _per_row(temperature, known.tokens), shape.depth - steps
    growth = parallel.extend_tree(growth, known, temperature, rest, shape.children, shape.nodes)
    lap("parallel")
    tree = borrow_nodes(growth.tree(shape.nodes), shape.borrowed)
    lap("tree")
    return tree


def _extend_context(known: DraftContext, beams: Beams, states: Tensor | None) -> DraftContext:
    """Return the draft context of each beam, one row for each beam.

    Args:
        known: Context of the preceding beams.
        beams: The beams; each extends one of the preceding ones by a token.
        states: The layers' states that predicted these tokens, one for each preceding beam; None: in ``known``.
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


def _per_row(temperature: Tensor, rows: Tensor) -> Tensor:
    """Repeat each request's temperature for its rows: [B] -> [rows]."""
    return temperature.repeat_interleave(len(rows) // len(temperature))
