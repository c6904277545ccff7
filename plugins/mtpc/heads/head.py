"""The whole head: hidden state in, circuit parameters out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import Circuit, CircuitParams
from mtpc.drafter.config import DrafterConfig
from mtpc.heads.leaves import SharedLeaves, TableLeaves
from mtpc.heads.sums import SumHead

IDENTITY_BIAS = 4.0


class Trunk(nn.Module):
    """A residual layer in front of the head: e + W2 silu(W1 e)."""

    def __init__(self, hidden_size: int, size: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, size, bias=False)
        self.down = nn.Linear(size, hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[B, d] -> [B, d]."""
        return hidden + self.down(F.silu(self.up(hidden)))


class CircuitHead(nn.Module):
    """Maps the target's hidden state to the parameters of a circuit."""

    def __init__(self, config: DrafterConfig, circuit: Circuit) -> None:
        super().__init__()
        d, n, r, v = config.hidden_size, config.window, config.rank, config.vocab_size
        self.trunk = Trunk(d, config.trunk_size) if config.trunk_size else nn.Identity()
        self.leaves: TableLeaves | SharedLeaves
        if config.leaves == "table":
            self.leaves = TableLeaves(n, r, v, d)
        else:
            self.leaves = SharedLeaves(n, r, v, d, config.leaf_features, config.component_features)
        self.sums = SumHead(circuit.sum_shapes(), d, config.sum_features) if circuit.sum_shapes() else None

    def logits(self, hidden: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Unnormalised leaves [B, n, R, V] and sums, float32: hidden [B, d] after the target's final norm."""
        features = self.trunk(hidden)
        sums = self.sums(features) if self.sums is not None else ()
        return self.leaves(features).float(), tuple(weights.float() for weights in sums)

    def forward(self, hidden: Tensor, temperature: Tensor | None = None) -> CircuitParams:
        """Circuit parameters: hidden [B, d]; a temperature [B] > 0 tempers them as `mtpc.circuits.temper` does."""
        return normalised(*self.logits(hidden), temperature)

    @torch.no_grad()
    def initialise(self, unembedding: Tensor) -> None:
        """Start of training; unembedding [V, d] is the target's own head."""
        if isinstance(self.trunk, Trunk):
            self.trunk.up.weight.normal_(std=self.trunk.up.in_features**-0.5)
            self.trunk.down.weight.zero_()
        self.leaves.initialise(unembedding)
        if self.sums is not None:
            self.sums.initialise(IDENTITY_BIAS)


def normalised(leaves: Tensor, sums: tuple[Tensor, ...], temperature: Tensor | None = None) -> CircuitParams:
    """Circuit parameters from the logits of a head, at a temperature [B] > 0 where one is given."""
    if temperature is not None:
        leaves = leaves / temperature.view(-1, 1, 1, 1)
        sums = tuple(weights / temperature.view(-1, *[1] * (weights.ndim - 1)) for weights in sums)
    return CircuitParams(torch.log_softmax(leaves, -1), tuple(torch.log_softmax(weights, -1) for weights in sums))
