"""The recursive loss of K steps (FastMTP paper, equations 1 and 2)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer
from mtpc.fastmtp.unroll import Attention, unroll

Loss = Literal["ce", "kl"]


def step_weights(steps: int, beta: float) -> list[float]:
    """alpha_k, proportional to beta^(k - 1), for k = 1..K; they sum to 1 (equation 2)."""
    powers = [beta**k for k in range(steps)]
    return [power / sum(powers) for power in powers]


def step_losses(
    layer: MTPLayer,
    head: SharedHead,
    hidden: Tensor,
    tokens: Tensor,
    chosen: Tensor,
    steps: int,
    attention: Attention = "served",
    loss: Loss = "ce",
) -> Tensor:
    """The sum over the chosen starts of every step's loss: [K].

    hidden: [B, L, d], the target's states, after its final norm, of tokens, int64 [B, L].  chosen: bool [B, L - K - 1],
    the starts i that count; all of t_{i+1}..t_{i+K+1} must be text.

    loss: "ce" is the cross-entropy of t_{i+k+1} (equation 1); "kl" the divergence from the target's whole distribution
    of that token, which is known here, so that more is learnt from as much text.
    """
    starts = tokens.shape[1] - steps - 1
    if loss == "kl":
        with torch.no_grad():
            log_p = F.log_softmax(head.logits(hidden), -1)  # [B, L, V], of the token after each position
    found = []
    for step, states in enumerate(unroll(layer, head, hidden[:, :starts], tokens, steps, attention), 1):
        logits = head.logits(states[chosen])  # [N, V]
        if loss == "ce":
            found.append(F.cross_entropy(logits, tokens[:, step + 1 : step + 1 + starts][chosen], reduction="sum"))
        else:
            expected = log_p[:, step : step + starts][chosen]
            found.append(F.kl_div(F.log_softmax(logits, -1), expected, reduction="sum", log_target=True))
    return torch.stack(found)
