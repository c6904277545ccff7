"""Losses of draft steps and parallel heads together (Gumiho paper, appendix C), and of a joint parallel part."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.unroll import unroll
from mtpc.lab.training.conversation_recipe import MicroBatch
from mtpc.lab.training.divergence import conditional_divergences
from mtpc.lab.training.head_loss import head_losses
from mtpc.lab.training.settings import Loss
from mtpc.methods.drafter import Drafter
from mtpc.parallel.circuit_head import to_circuit_params
from mtpc.parallel.independent import IndependentPart
from mtpc.target_head.shared import SharedHead

ROWS = 16  # starts whose leaf distributions are in memory at once


def position_losses(
    drafter: Drafter, micro_batch: MicroBatch, drafts: int, regression: float, classification: float, loss: Loss
) -> Tensor:
    """Sum the loss of every draft position over the chosen starts.

    The loss is w_reg L_reg + w_cls L_cls (Gumiho paper, appendix C). A joint parallel part (rank above 1) has one state
    per component, so its positions have no regression loss. Their classification loss is KL(p || q) of each
    conditional, given the text before it.

    Args:
        drafter: Drafter in training.
        micro_batch: Conversations with the target's states.
        drafts: Draft tokens K of both parts.
        regression: Weight w_reg of the smooth L1 distance from the target's state, averaged over its d dimensions.
        classification: Weight w_cls of the distribution's loss.
        loss: Name of the classification loss, see `head_losses`.

    Returns:
        Summed loss of each draft position, float32 [K].
    """
    assert drafter.autoregressive is not None
    hidden, tokens, chosen, head, _ = micro_batch
    starts, steps = chosen.shape[1], drafter.split(drafts)[0]
    # One tensor [B, T, d] per draft step.
    states = list(unroll(drafter.autoregressive, head, hidden[:, :starts], tokens, steps, chosen))
    joint: list[Tensor] = []
    if isinstance(drafter.parallel, IndependentPart):
        context = _draft_context(drafter, head, [hidden[:, :starts], *states], tokens, chosen)
        if drafter.parallel.config.rank == 1:
            parallel_states = drafter.parallel.states(context)[0][:, :, 0]  # [m, n, d]
            states += [_scatter_starts(chosen, of_position) for of_position in parallel_states.unbind(1)]
        else:
            joint.append(_joint_losses(drafter.parallel, head, context, hidden, tokens, chosen, steps))
    expected = (hidden[:, draft : draft + starts][chosen] for draft in range(1, len(states) + 1))
    regressed = [_regression_loss(drafted[chosen], wanted) for drafted, wanted in zip(states, expected, strict=True)]
    end = starts + len(states) + 1  # the whole length, unless the parallel part is joint
    classified = torch.cat(
        [head_losses(states, head, hidden[:, :end], tokens[:, :end], chosen, len(states), loss), *joint]
    )
    return regression * F.pad(torch.stack(regressed), (0, drafts - len(states))) + classification * classified


def _draft_context(
    drafter: Drafter, head: SharedHead, states: list[Tensor], tokens: Tensor, chosen: Tensor
) -> DraftContext:
    """Return what the parallel part reads at the m chosen starts: the last two positions.

    states: [B, T, d] of the target, then of each draft step.
    """
    assert drafter.autoregressive is not None
    starts, positions = chosen.shape[1], (len(states) - 2, len(states) - 1)
    read = torch.stack([states[i][chosen].float() for i in positions], 1)  # [m, 2, d]
    after = torch.stack([tokens[:, i + 1 : i + 1 + starts][chosen] for i in positions], 1)  # [m, 2]
    return DraftContext(read, after, drafter.autoregressive.inputs(head.embed(after).to(read.dtype), read), head)


def _regression_loss(states: Tensor, expected: Tensor) -> Tensor:
    """Return the smooth L1 distance of states [m, d] from the target's, summed over m."""
    return F.smooth_l1_loss(states.float(), expected.float(), reduction="none").mean(-1).sum()


def _scatter_starts(chosen: Tensor, rows: Tensor) -> Tensor:
    """Return [B, T, d] with rows [m, d] at the chosen starts and zero elsewhere."""
    return rows.new_zeros(*chosen.shape, rows.shape[-1]).index_put(chosen.nonzero(as_tuple=True), rows)


def _joint_losses(
    parallel: IndependentPart,
    head: SharedHead,
    context: DraftContext,
    hidden: Tensor,
    tokens: Tensor,
    chosen: Tensor,
    steps: int,
) -> Tensor:
    """Return KL(p || q) of a joint parallel part's conditionals, summed over the starts: [n]."""
    assert context.inputs is not None
    starts, positions = chosen.shape[1], range(steps + 1, steps + 1 + parallel.max_drafts)
    text = torch.stack([tokens[:, i + 1 : i + 1 + starts][chosen] for i in positions], 1)  # [m, n]
    expected = torch.stack([hidden[:, i : i + starts][chosen] for i in positions], 1)  # [m, n, d]

    def divergences(inputs: Tensor, text: Tensor, expected: Tensor) -> Tensor:
        params = to_circuit_params(*parallel.logits(context._replace(inputs=inputs)))
        return conditional_divergences(parallel.circuit, params, head.rows_of(text), head.logits(expected)).sum(0)

    total = context.inputs.new_zeros(parallel.max_drafts, dtype=torch.float32)
    for rows in zip(context.inputs.split(ROWS), text.split(ROWS), expected.split(ROWS), strict=True):
        total = total + checkpoint(divergences, *rows, use_reentrant=False)
    return total
