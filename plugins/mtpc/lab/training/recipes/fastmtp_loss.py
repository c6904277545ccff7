"""Recursive loss over K draft steps (FastMTP, arXiv 2509.18362, equations 1 and 2)."""

from __future__ import annotations

from torch import Tensor

from mtpc.autoregressive.part import AutoregressivePart
from mtpc.lab.evaluation.unroll import unroll
from mtpc.lab.training.head_loss import head_losses
from mtpc.lab.training.settings import Loss
from mtpc.target_head.shared import SharedHead


def step_weights(steps: int, beta: float) -> list[float]:
    """Return the weights alpha_k, proportional to beta^(k-1), k = 1..K, which sum to 1 (FastMTP, equation 2)."""
    powers = [beta**k for k in range(steps)]
    return [power / sum(powers) for power in powers]


def step_losses(
    layer: AutoregressivePart,
    head: SharedHead,
    hidden: Tensor,
    tokens: Tensor,
    chosen: Tensor,
    steps: int,
    loss: Loss = "ce",
) -> Tensor:
    """Sum the loss of every draft step over the chosen starts.

    With "ce" these are the terms L_mtp^k of FastMTP's equation 1, before the weights alpha_k.

    Args:
        layer: Autoregressive part in training.
        head: Output head of the target, or a sample of its rows.
        hidden: Hidden states of the target after its final norm, [B, L, d].
        tokens: Token ids, int64 [B, L].
        chosen: Mask of the starts to train on, bool [B, L - K - 1].
        steps: Draft steps K.
        loss: Name of the loss, see `head_losses`.

    Returns:
        Summed loss of each step, in nats, float32 [K].
    """
    starts = tokens.shape[1] - steps - 1
    states = unroll(layer, head, hidden[:, :starts], tokens, steps, chosen)
    return head_losses(states, head, hidden, tokens, chosen, steps, loss)
