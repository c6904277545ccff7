"""Losses of drafts made through the target's output head, along a text, without the logits of all positions."""

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
    """The sum over the chosen starts of the loss of every draft: [K].

    states: of each draft k = 1..K the states, [B, L - K - 1, d], that predict t_{i+k+1} from each start i.  hidden:
    [B, L, d], the target's states, after its final norm, of tokens, int64 [B, L].  chosen: bool [B, L - K - 1], the
    starts i that count; all of t_{i+1}..t_{i+K+1} must be text.

    loss: "ce" is the cross-entropy of the token; "kl" the divergence from the target's whole distribution of that
    token, which is known here, so that more is learnt from as much text; "lk" the negative logarithm of the
    probability that the token drafted is accepted, the sum of the smaller ones of both distributions ("LK Losses",
    arXiv 2602.23881).  With a `SampledHead` all are estimates, for whose "ce" every token of the text needs its row.
    """
    aligned, counts = [], []
    for draft, found in enumerate(states, 1):
        around = (draft, drafts - draft)  # draft k from i predicts what follows position i + k
        aligned.append(F.pad(found, (0, 0, *around)))
        counts.append(F.pad(chosen, around))
    counted = torch.stack(counts)  # [K, B, L - 1]
    read = counted.any(0)
    answers = head.rows_of(tokens[:, 1:][read]) if loss == "ce" else hidden[:, :-1][read]
    summed: Tensor = _HeadLoss.apply(torch.stack(aligned)[:, read], counted[:, read], answers, head, loss)
    return summed


class _HeadLoss(torch.autograd.Function):
    """The loss of the output head's distributions, without ever holding the logits of all positions.

    The head is frozen, so the gradient with respect to the logits is known with them.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, counted: Tensor, answers: Tensor, head: SharedHead, loss: Loss) -> Tensor:
        """States [K, R, d], counted bool [K, R], answers int64 [R], their rows, or [R, d], the target's states: [K]."""
        total = torch.zeros(len(states), device=states.device)
        slopes = torch.empty_like(states)
        for first in range(0, states.shape[1], ROWS):
            rows = slice(first, first + ROWS)
            log_q = head.logits(states[:, rows]).log_softmax(-1)  # [K, some, V]
            if loss == "ce":
                each, slope = _cross_entropy(log_q, answers[rows])
            else:
                log_p = head.logits(answers[rows]).log_softmax(-1)
                each, slope = _divergence(log_q, log_p) if loss == "kl" else _rejection(log_q, log_p)
            total += (each * counted[:, rows]).sum(-1)
            slopes[:, rows] = (slope.to(head.rows.dtype) @ head.rows) * counted[:, rows, None]
        ctx.save_for_backward(slopes)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None, None]:
        """By the chain rule; each step's loss has its own weight, slope [K]."""
        return ctx.saved_tensors[0] * slope[:, None, None], None, None, None, None


# Each gives a loss of every position, [K, R], and its gradient with respect to the drafted logits, [K, R, V], of
# log_q [K, R, V], which it may overwrite, and of the tokens [R] or log_p [R, V].


def _cross_entropy(log_q: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    places = tokens[:, None].expand(len(log_q), -1, -1)
    each = -log_q.gather(-1, places)[..., 0]
    slope = log_q.exp_()
    return each, slope.scatter_add_(-1, places, torch.full_like(slope[..., :1], -1.0))


def _divergence(log_q: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    p, q = log_p.exp(), log_q.exp()
    return (p * log_p).sum(-1) - log_q.mul_(p).sum(-1), q.sub_(p)


def _rejection(log_q: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """-log a, of the accepted mass a = sum min(p, q), which has a slope where q < p alone."""
    p, q = log_p.exp(), log_q.exp_()
    accepted = torch.minimum(p, q).sum(-1, keepdim=True)
    below = q * (q < p)
    slope = q.mul_(below.sum(-1, keepdim=True)).sub_(below).div_(accepted)
    return -accepted[..., 0].log(), slope
