"""The losses of draft steps and parallel heads together (Gumiho paper, appendix C), and of a joint window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mtpc.circuits.params import normalize_log, token_evidence
from mtpc.draft import DraftContext
from mtpc.lab.evaluation.unroll import unroll
from mtpc.lab.training.from_conversations import Part
from mtpc.lab.training.head_loss import head_losses
from mtpc.lab.training.settings import Loss
from mtpc.methods.drafter import Drafter
from mtpc.parallel.circuit_head import to_circuit_params
from mtpc.parallel.independent import IndependentPart
from mtpc.target_head.shared import SharedHead

ROWS = 16  # starts whose leaf distributions are in memory at once
LEAST = 1e-9  # of the probabilities that the KL loss reads of a joint window


def position_losses(
    drafter: Drafter, part: Part, drafts: int, regression: float, classification: float, loss: Loss
) -> Tensor:
    """The sum over the chosen starts of the loss of every draft: [K].

    regression: the weight of the smooth-L1 distance of a draft's state from the target's, over its d dimensions on
    average.  classification: the weight of its distribution's loss, see `head_losses`.  Of a window that is more than
    independent heads the first is left out, as its components have a state each, and the second is the divergence of
    each conditional, given the text before it, from the target's.
    """
    assert drafter.autoregressive is not None
    hidden, tokens, chosen, head = part
    starts, steps = chosen.shape[1], drafter.split(drafts)[0]
    states = list(
        unroll(drafter.autoregressive, head, hidden[:, :starts], tokens, steps, chosen=chosen)
    )  # [B, T, d] each
    joint: list[Tensor] = []
    if isinstance(drafter.parallel, IndependentPart):
        known = _known(drafter, head, [hidden[:, :starts], *states], tokens, chosen)
        if drafter.parallel.config.rank == 1:
            made = drafter.parallel.states(known)[0][:, :, 0]  # [m, n, d]
            states += [_spread(chosen, of_position) for of_position in made.unbind(1)]
        else:
            joint.append(_joint_losses(drafter.parallel, head, known, hidden, tokens, chosen, steps))
    expected = (hidden[:, draft : draft + starts][chosen] for draft in range(1, len(states) + 1))
    regressed = [_distance(found[chosen], there) for found, there in zip(states, expected, strict=True)]
    reached = (
        hidden[:, : starts + len(states) + 1],
        tokens[:, : starts + len(states) + 1],
    )  # without a joint window: all
    classified = torch.cat([head_losses(states, head, *reached, chosen, len(states), loss), *joint])
    return regression * F.pad(torch.stack(regressed), (0, drafts - len(states))) + classification * classified


def _known(drafter: Drafter, head: SharedHead, states: list[Tensor], tokens: Tensor, chosen: Tensor) -> DraftContext:
    """The last two places that the window reads, at the m chosen starts.

    states: [B, T, d] of all places, the target's first.
    """
    assert drafter.autoregressive is not None
    starts, places = chosen.shape[1], (len(states) - 2, len(states) - 1)
    read = torch.stack([states[place][chosen].float() for place in places], 1)  # [m, 2, d]
    after = torch.stack([tokens[:, place + 1 : place + 1 + starts][chosen] for place in places], 1)  # [m, 2]
    return DraftContext(read, after, drafter.autoregressive.inputs(head.embed(after).to(read.dtype), read), head)


def _distance(found: Tensor, expected: Tensor) -> Tensor:
    """Of states [m, d] from the target's, summed over them."""
    return F.smooth_l1_loss(found.float(), expected.float(), reduction="none").mean(-1).sum()


def _spread(chosen: Tensor, rows: Tensor) -> Tensor:
    """Rows [m, d] where starts are chosen, zero elsewhere: [B, T, d]."""
    return rows.new_zeros(*chosen.shape, rows.shape[-1]).index_put(chosen.nonzero(as_tuple=True), rows)


def _joint_losses(
    window: IndependentPart,
    head: SharedHead,
    known: DraftContext,
    hidden: Tensor,
    tokens: Tensor,
    chosen: Tensor,
    steps: int,
) -> Tensor:
    """The divergences of a joint window's conditionals, summed over the starts: [n]."""
    assert known.inputs is not None
    starts, places = chosen.shape[1], range(steps + 1, steps + 1 + window.max_drafts)
    text = torch.stack([tokens[:, place + 1 : place + 1 + starts][chosen] for place in places], 1)  # [m, n]
    expected = torch.stack([hidden[:, place : place + starts][chosen] for place in places], 1)  # [m, n, d]

    def of_rows(inputs: Tensor, text: Tensor, expected: Tensor) -> Tensor:
        logits = window.logits(known._replace(inputs=inputs))
        params = to_circuit_params(*logits)
        evidence = token_evidence(params.leaves, head.rows_of(text))
        weights = normalize_log(window.circuit.beliefs(params.sums, evidence)).exp()  # [m, n, R]
        q = (weights[:, :, None] @ params.leaves.exp())[:, :, 0]
        log_p = head.logits(expected).log_softmax(-1)  # [m, n, V]
        return (log_p.exp() * (log_p - q.clamp_min(LEAST).log())).sum((0, 2))

    total = known.inputs.new_zeros(window.max_drafts, dtype=torch.float32)
    for rows in zip(known.inputs.split(ROWS), text.split(ROWS), expected.split(ROWS), strict=True):
        total = total + checkpoint(of_rows, *rows, use_reentrant=False)
    return total
