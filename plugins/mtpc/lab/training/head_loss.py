"""Losses of draft tokens through the target's output head, without the logits of all positions in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.lab.training.settings import Loss
from mtpc.target_head.shared import SharedHead

ROWS = 32  # positions whose logits are in memory at once, for all drafts


def head_losses(
    states: Iterable[Tensor], head: SharedHead, hidden: Tensor, tokens: Tensor, chosen: Tensor, drafts: int, loss: Loss
) -> Tensor:
    """Sum the loss of every draft position over the chosen starts.

    With a `SampledHead` all losses are estimates.

    Args:
        states: K tensors [B, L - K - 1, d]. Tensor k = 1..K predicts t_{i+k+1} from each start i.
        head: Output head of the target. For "ce" it must hold the row of every token in ``tokens``.
        hidden: Hidden states of the target after its final norm, [B, L, d].
        tokens: Token ids, int64 [B, L].
        chosen: Mask of the starts i that count, bool [B, L - K - 1]. Their t_{i+1}..t_{i+K+1} must not be padding.
        drafts: Draft tokens K per start.
        loss: "ce" is the cross-entropy of the token, -log q(t) (FastMTP, equation 1).
            "kl" is KL(p || q), the divergence from the target's distribution of that token (as MTPC, equation 5).

    Returns:
        Summed loss of each draft position, in nats, float32 [K].
    """
    aligned, masks = [], []
    for draft, draft_states in enumerate(states, 1):
        around = (draft, drafts - draft)  # draft k from start i predicts the token after position i + k
        aligned.append(F.pad(draft_states, (0, 0, *around)))
        masks.append(F.pad(chosen, around))
    counted = torch.stack(masks)  # [K, B, L - 1]
    used = counted.any(0)
    answers = head.rows_of(tokens[:, 1:][used]) if loss == "ce" else hidden[:, :-1][used]
    summed: Tensor = _HeadLoss.apply(torch.stack(aligned)[:, used], counted[:, used], answers, head, loss)
    return summed


class _HeadLoss(torch.autograd.Function):
    """Loss through the output head in blocks of `ROWS` positions.

    The head is frozen, so the forward pass also computes the gradient with respect to the states.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, counted: Tensor, answers: Tensor, head: SharedHead, loss: Loss) -> Tensor:
        """Return the summed losses [K].

        Args:
            ctx: Autograd context, which keeps the gradients.
            states: Draft states, [K, R, d].
            counted: Mask of the positions that count, bool [K, R].
            answers: Head rows of the tokens, int64 [R], or the target's hidden states, [R, d].
            head: Output head of the target.
            loss: Name of the loss, see `head_losses`.
        """
        total = torch.zeros(len(states), device=states.device)
        slopes = torch.empty_like(states)
        for first in range(0, states.shape[1], ROWS):
            rows = slice(first, first + ROWS)
            log_q = head.logits(states[:, rows]).log_softmax(-1)  # [K, some, V]
            if loss == "ce":
                each, slope = _cross_entropy(log_q, answers[rows])
            else:
                each, slope = _divergence(log_q, head.logits(answers[rows]).log_softmax(-1))
            total += (each * counted[:, rows]).sum(-1)
            slopes[:, rows] = (slope.to(head.rows.dtype) @ head.rows) * counted[:, rows, None]
        ctx.save_for_backward(slopes)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Scale the stored gradients by ``slope`` [K], the gradient of each position's loss."""
        return ctx.saved_tensors[0] * slope[:, None, None], None, None, None, None


# Each takes log_q [K, R, V], which it may overwrite, and the tokens [R] or log_p [R, V].
# Each returns the loss of every position, [K, R], and its gradient with respect to the draft logits, [K, R, V].


def _cross_entropy(log_q: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    index = tokens[:, None].expand(len(log_q), -1, -1)
    each = -log_q.gather(-1, index)[..., 0]
    slope = log_q.exp_()
    return each, slope.scatter_add_(-1, index, torch.full_like(slope[..., :1], -1.0))


def _divergence(log_q: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    p, q = log_p.exp(), log_q.exp()
    return (p * log_p).sum(-1) - log_q.mul_(p).sum(-1), q.sub_(p)
