"""Circuit parameters in log space: leaf distributions and sum weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CircuitParams(NamedTuple):
    """Normalized log-parameters of a batch of circuits (MTPC paper, section 3.3).

    Attributes:
        leaves: [B, n, R, V], log phi_ij(v): the token distribution of position i under component j.
        sums: Log sum weights, normalized over their last axis. `Circuit.sum_shapes` states their number and shapes.
    """

    leaves: Tensor
    sums: tuple[Tensor, ...]

    def upcast(self) -> CircuitParams:
        """Return half-precision parameters as float32, in which every operation computes, and others unchanged."""
        return CircuitParams(_upcast(self.leaves), tuple(_upcast(weights) for weights in self.sums))


def _upcast(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def token_evidence(leaves: Tensor, x: Tensor) -> Tensor:
    """Return log phi_ij(x_i), the evidence of tokens about the components.

    Args:
        leaves: [B, n, R, V].
        x: int64 [B, n].

    Returns:
        [B, n, R].
    """
    index = x[:, :, None, None].expand(-1, -1, leaves.shape[2], 1)
    return leaves.gather(3, index).squeeze(3)


def known_evidence(leaves: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the evidence of tokens that the leaves may not have, and whether they are possible.

    A token that no component can draft, such as one outside of the draft vocabulary, is no evidence at all. Counted as
    impossible under all components it would leave no distribution for the next position.

    Args:
        leaves: [B, n, R, V], or the tokens of a draft vocabulary instead of V.
        places: int64 [B, n], indices of the leaves' last axis; -1 for a token that they lack.

    Returns:
        Evidence [B, n, R] and possibility, bool [B, n].
    """
    found = token_evidence(leaves, places.clamp_min(0))
    possible = (places >= 0) & (found.amax(-1) > -torch.inf)
    return torch.where(possible[..., None], found, 0.0), possible


def exclusive_cumsum(evidence: Tensor) -> Tensor:
    """Return the log-probability of the tokens before each position: [B, n, R] -> [B, n, R]."""
    return torch.cat([torch.zeros_like(evidence[:, :1]), evidence[:, :-1].cumsum(1)], 1)


def normalize_log(weights: Tensor) -> Tensor:
    """Normalize log weights over the last axis.

    Args:
        weights: [..., R].

    Returns:
        [..., R]. A row without mass stays -inf instead of NaN.
    """
    total = torch.logsumexp(weights, -1, keepdim=True)
    return weights - torch.where(total == -torch.inf, torch.zeros_like(total), total)
