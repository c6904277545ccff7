"""Heads in parallel: a network for each position, all of them from the same inputs (Gumiho paper, section 3.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """A linear layer for each of n positions, in one product.  weight: [n, out, in]; bias: [n, out]."""

    def __init__(self, positions: int, size: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(positions, out, size))
        self.bias = nn.Parameter(torch.zeros(positions, out))

    def forward(self, x: Tensor) -> Tensor:
        """[B, n, in] -> [B, n, out]."""
        return torch.baddbmm(self.bias[:, None], x.transpose(0, 1), self.weight.transpose(1, 2)).transpose(0, 1)

    @torch.no_grad()
    def initialize(self, scale: float = 1.0) -> None:
        """Start of training: outputs of the variance of the inputs, times ``scale``."""
        self.weight.normal_(std=scale * self.weight.shape[2] ** -0.5)
        self.bias.zero_()


class ParallelHeads(nn.Module):
    """MLPs of one layer that halves, x -> silu(W x + b), and residual ones, x -> x + silu(W x + b).

    The paper's appendix C has five of the latter; which activation is where, its published code says.
    """

    def __init__(self, positions: int, size: int, blocks: int) -> None:
        super().__init__()
        self.positions = positions
        self.reduce = StackedLinear(positions, 2 * size, size)
        self.blocks = nn.ModuleList([StackedLinear(positions, size, size) for _ in range(blocks)])

    def forward(self, both: Tensor) -> Tensor:
        """States of every position from two inputs side by side: [B, 2 d] -> [B, n, d]."""
        x = F.silu(self.reduce(both[:, None].expand(-1, self.positions, -1)))
        for block in self.blocks:
            x = x + F.silu(block(x))
        return x

    @torch.no_grad()
    def initialize(self) -> None:
        """Start of training: residual layers that add little."""
        self.reduce.initialize(2.0)
        for block in self.blocks:
            assert isinstance(block, StackedLinear)
            block.initialize(0.5)


class Components(nn.Module):
    """What each of R components of a circuit makes of the state of a position: f + c_j + B_j silu(A f).

    The components differ in what they add; with B and c at zero all say the same.
    """

    def __init__(self, positions: int, rank: int, size: int, features: int) -> None:
        super().__init__()
        self.shape = (positions, rank, size)
        self.down = StackedLinear(positions, size, features)
        self.up = StackedLinear(positions, features, rank * size)  # its bias is c

    def forward(self, states: Tensor) -> Tensor:
        """[B, n, d] -> [B, n, R, d]."""
        return states[:, :, None] + self.up(F.silu(self.down(states))).unflatten(2, self.shape[1:])

    @torch.no_grad()
    def initialize(self) -> None:
        """Start of training: components that differ a little, or none would ever learn to."""
        self.down.initialize()
        self.up.initialize(0.1)
        self.up.bias.normal_(std=0.1)
