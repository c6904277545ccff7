"""The recursive loss of K steps (FastMTP paper, equations 1 and 2)."""

from __future__ import annotations

from torch import Tensor

from mtpc.autoregressive.part import AutoregressivePart
from mtpc.lab.evaluation.attention import Attention
from mtpc.lab.evaluation.unroll import unroll
from mtpc.lab.training.head_loss import head_losses
from mtpc.lab.training.settings import Loss
from mtpc.target_head.shared import SharedHead


def step_weights(steps: int, beta: float) -> list[float]:
    """alpha_k, proportional to beta^(k - 1), for k = 1..K; they sum to 1 (equation 2)."""
    powers = [beta**k for k in range(steps)]
    return [power / sum(powers) for power in powers]


def step_losses(
    layer: AutoregressivePart,
    head: SharedHead,
    hidden: Tensor,
    tokens: Tensor,
    chosen: Tensor,
    steps: int,
    attention: Attention = "served",
    loss: Loss = "ce",
) -> Tensor:
    """The sum over the chosen starts of every step's loss: [K]; see `head_losses`.  "ce" is the paper's equation 1."""
    starts = tokens.shape[1] - steps - 1
    states = unroll(layer, head, hidden[:, :starts], tokens, steps, attention, chosen)
    return head_losses(states, head, hidden, tokens, chosen, steps, loss)
