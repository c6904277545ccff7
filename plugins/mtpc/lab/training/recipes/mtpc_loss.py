"""The training losses: equation 4 (likelihood) and equation 5 (Kullback-Leibler) of the MTPC paper."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.circuits.params import normalize_log, token_evidence
from mtpc.parallel.circuit_part import CircuitPart

LEAST = 1e-9  # of the probabilities that the KL loss reads of a drafter


def discounts(window: int, gamma: float, device: torch.device) -> Tensor:
    """gamma^(j-1) for j = 1..n, scaled to sum to 1 so that windows of different length compare: [n]."""
    weights = gamma ** torch.arange(window, dtype=torch.float32, device=device)
    return weights / weights.sum()


def token_losses(part: CircuitPart, hidden: Tensor, x: Tensor) -> Tensor:
    """-log q(x_j | x_<j, h) of every token of the circuit's window (equation 4): [B, n].

    hidden: [B, d]; x: int64 [B, window].  n = window, or one less where the head reads the first token.  The leaf
    distributions are never stored, only their value at x.
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
    """KL(p || q) of every conditional, both given the text before it (equation 5): [B, n] as in `token_losses`.

    target_logits: [B, window, V], of p(x_j | x_<j).  q counts as no less than `LEAST`, so that no loss is infinite.
    """
    params = part.head(hidden, x[:, 0])
    x, target_logits = (whole[:, -params.leaves.shape[1] :] for whole in (x, target_logits))
    weights = normalize_log(part.circuit.beliefs(params.sums, token_evidence(params.leaves, x))).exp()  # [B, n, R]
    q = (weights[:, :, None] @ params.leaves.exp())[:, :, 0]  # [B, n, V]
    log_p = torch.log_softmax(target_logits, -1)
    return (log_p.exp() * (log_p - q.clamp_min(LEAST).log())).sum(-1)
