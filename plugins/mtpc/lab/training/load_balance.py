"""Load balancing of a circuit's components, and the measurement of dead ones (Basharin et al. 2025, section 2.3)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.circuits import Circuit
from mtpc.circuits.params import normalize_log

DEAD_SHARE = 0.1  # a component with less than this part of an equal share 1 / R is dead


def balance_loss(circuit: Circuit, sums: tuple[Tensor, ...]) -> Tensor:
    """Return how unequally the components are used (Basharin et al. 2025, equation 10), averaged over positions.

    The sum of (u_j - 1 / R)^2 over the components. There u_j is the share of the starts in which component j has the
    largest weight, which has no gradient. Here it is the mean weight over the starts: for CP that of w, for HMM and
    BTree that of the component's marginal at each position.

    Args:
        circuit: The structure.
        sums: Unnormalized sum weights of m starts, [m, ...] each, see `Circuit.sum_shapes`.

    Returns:
        Between 0 and 1 - 1 / R, float32 [].
    """
    normalized = tuple(weights.log_softmax(-1) for weights in sums)
    no_evidence = sums[0].new_zeros(len(sums[0]), circuit.window, circuit.rank)
    usage = normalize_log(circuit.beliefs(normalized, no_evidence)).exp().mean(0)  # [n, R]
    return (usage - 1 / circuit.rank).square().sum(-1).mean()


class ComponentUsage(NamedTuple):
    """Responsibilities of the components of each position along texts, summed over starts.

    Attributes:
        shares: float32 [n, R].
        starts: Number of starts.
    """

    shares: Tensor
    starts: int

    @classmethod
    def of(cls, circuit: Circuit, sums: tuple[Tensor, ...], evidence: Tensor) -> ComponentUsage:
        """Return the responsibilities q(z_i = j | x_1..x_i).

        Args:
            circuit: The structure.
            sums: Log sum weights of m starts, [m, ...] each.
            evidence: log phi_ij(x_i), [m, n, R].
        """
        return cls(normalize_log(circuit.beliefs(sums, evidence) + evidence).exp().sum(0), len(evidence))

    def plus(self, other: ComponentUsage) -> ComponentUsage:
        """Return the usage of both."""
        return ComponentUsage(self.shares + other.shares, self.starts + other.starts)

    def to_json(self) -> dict[str, Any]:
        """Return figures by position: the share of dead components, and the entropy of the usage in nats."""
        usage = self.shares / max(1, self.starts)
        rank = usage.shape[1]
        dead = (usage < DEAD_SHARE / rank).float().mean(-1)
        entropy = -(usage * usage.clamp_min(torch.finfo(torch.float32).tiny).log()).sum(-1)
        return {
            "dead_share": [round(each, 4) for each in dead.tolist()],
            "usage_entropy": [round(each, 4) for each in entropy.tolist()],
            "equal_usage_entropy": round(math.log(rank), 4),
            "starts": self.starts,
        }
