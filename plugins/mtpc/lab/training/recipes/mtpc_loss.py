"""Training losses of circuits: likelihood (equation 4) and KL divergence (equation 5) of the MTPC paper."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.lab.training.divergence import conditional_divergences
from mtpc.parallel.circuit_part import CircuitPart


def discounts(window: int, gamma: float, device: torch.device) -> Tensor:
    """Return gamma^(j-1) for j = 1..n, float32 [n], scaled to sum to 1 (MTPC paper, section 4.1).

    The scale makes losses of windows of different lengths comparable.
    """
    weights = gamma ** torch.arange(window, dtype=torch.float32, device=device)
    return weights / weights.sum()


def token_losses(part: CircuitPart, hidden: Tensor, x: Tensor) -> Tensor:
    """Return -log q(x_j | x_<j, h) of every token of the circuit's window (MTPC paper, equation 4).

    The leaf distributions are not stored, only their values at x.

    Args:
        part: Circuit in training.
        hidden: Hidden states of the target, [B, d].
        x: Tokens of the window, int64 [B, window].

    Returns:
        Losses in nats, float32 [B, n]. n is the window, or one less if the head reads the first token.
    """
    logits, sum_logits = part.head.logits(hidden, x[:, 0])
    x = x[:, -logits.shape[1] :]
    rank = logits.shape[2]
    targets = x[:, :, None].expand(-1, -1, rank)
    evidence = -F.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none").view(targets.shape)
    sums = tuple(torch.log_softmax(weights, -1) for weights in sum_logits)
    prefixes = torch.logsumexp(part.circuit.beliefs(sums, evidence) + evidence, -1)  # [B, n]
    return torch.diff(-prefixes, dim=1, prepend=prefixes.new_zeros(len(prefixes), 1))


def distribution_losses(part: CircuitPart, hidden: Tensor, x: Tensor, target_logits: Tensor) -> Tensor:
    """Return the divergence of every conditional, see `conditional_divergences`.

    Args:
        part: Circuit in training.
        hidden: Hidden states of the target, [B, d].
        x: Tokens of the window, int64 [B, window].
        target_logits: Logits of p(x_j | x_<j), [B, window, V].

    Returns:
        Losses in nats, float32 [B, n] as in `token_losses`.
    """
    params = part.head(hidden, x[:, 0])
    x, target_logits = (whole[:, -params.leaves.shape[1] :] for whole in (x, target_logits))
    return conditional_divergences(part.circuit, params, x, target_logits)
