"""Sum weights of a circuit from the hidden state (MTPC paper, section 3.3 and appendix E)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import Circuit


class SumHead(nn.Module):
    """Contextual sum weights: logits R s + b of all sum units, with s = S e of ``features`` dimensions.

    With ``features`` = 0 there is no S, and R acts on the whole hidden state as in the MTPC paper.
    """

    def __init__(self, shapes: tuple[tuple[int, ...], ...], hidden_size: int, features: int) -> None:
        super().__init__()
        self.shapes = shapes
        self.sizes = [math.prod(shape) for shape in shapes]
        self.reduce = nn.Linear(hidden_size, features, bias=False) if features else nn.Identity()
        self.weight = nn.Parameter(torch.zeros(sum(self.sizes), features or hidden_size))
        self.bias = nn.Parameter(torch.zeros(sum(self.sizes)))

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """Compute logits, one tensor per entry of ``shapes``: [B, d] -> [B, *shape]."""
        logits = F.linear(self.reduce(features), self.weight, self.bias)
        parts = logits.split(self.sizes, -1)
        return tuple(part.unflatten(-1, shape) for part, shape in zip(parts, self.shapes, strict=True))

    def leading(self, circuit: Circuit, window: int) -> dict[str, Tensor]:
        """Return the weights of a chain's first positions by name."""
        by_unit = (part.unflatten(0, shape) for part, shape in zip(self._rows(), self.shapes, strict=True))
        kept = circuit.leading_sums(tuple(by_unit), window)
        rows = torch.cat([part.flatten(0, -2) for part in kept])
        return {**self.state_dict(), "weight": rows[:, :-1], "bias": rows[:, -1]}

    def _rows(self) -> tuple[Tensor, ...]:
        """Return weights and biases of each entry of ``shapes``, [size, features + 1]."""
        return torch.cat([self.weight, self.bias[:, None]], 1).split(self.sizes)

    @torch.no_grad()
    def initialize(self, identity: float) -> None:
        """Initialize small random weights and a bias of ``identity`` on the diagonal of every square sum layer.

        With identity transitions an HMM or a BTree starts as the CP circuit with the same leaves. Appendix E of the
        MTPC paper reports the best training from this start.
        """
        self.weight.normal_(std=0.02)
        self.bias.zero_()
        for bias, shape in zip(self.bias.split(self.sizes), self.shapes, strict=True):
            if len(shape) == 3 and bias.numel():
                bias.view(shape).diagonal(dim1=-2, dim2=-1).fill_(identity)
