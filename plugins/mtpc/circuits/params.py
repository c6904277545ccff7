"""The parameters of a circuit: leaf distributions and sum weights, in log space."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CircuitParams(NamedTuple):
    """Normalised log-parameters of a batch of circuits (MTPC paper, section 3.3).

    leaves: [B, n, R, V], log phi_ij(v): the token distribution of position i under component j.
    sums: log weights, normalised over their last axis; their number and shapes are the circuit's
    (`Circuit.sum_shapes`).
    """

    leaves: Tensor
    sums: tuple[Tensor, ...]

    def upcast(self) -> CircuitParams:
        """Half-precision parameters as float32, in which every operation computes; others as they are."""
        return CircuitParams(_upcast(self.leaves), tuple(_upcast(weights) for weights in self.sums))


def _upcast(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def temper(params: CircuitParams, temperature: Tensor) -> CircuitParams:
    """Raise every leaf and sum distribution to the power 1/T and renormalise it.

    This is a circuit of the same structure, so it is sampled and evaluated exactly; it is not the
    tempered joint q(x)^(1/T), which is intractable for a mixture.  The reference for heads, which scale their logits
    before they normalise them and so save a pass.

    temperature: [B], positive.
    """
    params = params.upcast()

    def one(weights: Tensor) -> Tensor:
        scale = temperature.to(weights.dtype).view(-1, *[1] * (weights.ndim - 1))
        return torch.log_softmax(weights / scale, -1)

    return CircuitParams(one(params.leaves), tuple(one(weights) for weights in params.sums))


def token_evidence(leaves: Tensor, x: Tensor) -> Tensor:
    """Log phi_ij(x_i): leaves [B, n, R, V], x int64 [B, n] -> [B, n, R]."""
    index = x[:, :, None, None].expand(-1, -1, leaves.shape[2], 1)
    return leaves.gather(3, index).squeeze(3)


def exclusive_cumsum(evidence: Tensor) -> Tensor:
    """Exclusive cumulative sum over the window: the log-probability of the tokens before each position.

    evidence: [B, n, R] -> [B, n, R].
    """
    return torch.cat([torch.zeros_like(evidence[:, :1]), evidence[:, :-1].cumsum(1)], 1)


def normalize_log(weights: Tensor) -> Tensor:
    """Log weights normalised over the last axis; a row without mass stays -inf instead of NaN."""
    total = torch.logsumexp(weights, -1, keepdim=True)
    return weights - torch.where(total == -torch.inf, torch.zeros_like(total), total)
