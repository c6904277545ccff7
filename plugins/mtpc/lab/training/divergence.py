"""KL divergence of a circuit's conditionals from the target's distributions (MTPC paper, equation 5)."""

from __future__ import annotations

from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.params import normalize_log, token_evidence

MIN_PROBABILITY = 1e-9  # lower bound of a drafter's probabilities, so that the divergence is finite


def conditional_divergences(circuit: Circuit, params: CircuitParams, text: Tensor, target_logits: Tensor) -> Tensor:
    """Return KL(p || q) of every conditional q(x_i | x_<i), with q bounded below by `MIN_PROBABILITY`.

    Args:
        circuit: The structure.
        params: Of B circuits.
        text: Tokens of the window, as numbers of the leaves' tokens, int64 [B, n].
        target_logits: Logits of p(x_i | x_<i), [B, n, V].

    Returns:
        Divergences in nats, [B, n].
    """
    weights = normalize_log(circuit.beliefs(params.sums, token_evidence(params.leaves, text))).exp()  # [B, n, R]
    q = (weights[:, :, None] @ params.leaves.exp())[:, :, 0]  # [B, n, V]
    log_p = target_logits.log_softmax(-1)
    return (log_p.exp() * (log_p - q.clamp_min(MIN_PROBABILITY).log())).sum(-1)
