"""Parallel heads: one MLP per position, all with the same input (Gumiho paper, section 3.3, equation 10)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """A linear layer for each of n positions, computed in one batched product.

    Attributes:
        weight: [n, out, in].
        bias: [n, out].
    """

    def __init__(self, positions: int, size: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(positions, out, size))
        self.bias = nn.Parameter(torch.zeros(positions, out))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, n, in] to [B, n, out]."""
        return torch.baddbmm(self.bias[:, None], x.transpose(0, 1), self.weight.transpose(1, 2)).transpose(0, 1)

    @torch.no_grad()
    def initialize(self, scale: float = 1.0) -> None:
        """Initialize so that outputs have the variance of the inputs, times ``scale`` squared."""
        self.weight.normal_(std=scale * self.weight.shape[2] ** -0.5)
        self.bias.zero_()


class ParallelHeads(nn.Module):
    """One MLP per position: x -> silu(W x + b), which halves the width, then residual x -> x + silu(W x + b).

    Appendix C of the Gumiho paper has five residual layers. The place of the activations is that of its published code.
    """

    def __init__(self, positions: int, size: int, blocks: int) -> None:
        super().__init__()
        self.positions = positions
        self.reduce = StackedLinear(positions, 2 * size, size)
        self.blocks = nn.ModuleList([StackedLinear(positions, size, size) for _ in range(blocks)])

    def forward(self, both: Tensor) -> Tensor:
        """Map two concatenated inputs to the states of every position: [B, 2 d] -> [B, n, d]."""
        x = F.silu(self.reduce(both[:, None].expand(-1, self.positions, -1)))
        for block in self.blocks:
            x = x + F.silu(block(x))
        return x

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize with residual layers that add little."""
        self.reduce.initialize(2.0)
        for block in self.blocks:
            assert isinstance(block, StackedLinear)
            block.initialize(0.5)


class Components(nn.Module):
    """The state of each of R components of a circuit at a position with state f: f + c_j + B_j silu(A f).

    With B and c at zero all components are equal.
    """

    def __init__(self, positions: int, rank: int, size: int, features: int) -> None:
        super().__init__()
        self.shape = (positions, rank, size)
        self.down = StackedLinear(positions, size, features)
        self.up = StackedLinear(positions, features, rank * size)  # its bias is c

    def forward(self, states: Tensor) -> Tensor:
        """Map [B, n, d] to [B, n, R, d]."""
        return states[:, :, None] + self.up(F.silu(self.down(states))).unflatten(2, self.shape[1:])

    def features(self, states: Tensor) -> Tensor:
        """Return silu(A f), followed by 1: [B, n, d] -> [B, n, k + 1]."""
        return F.pad(F.silu(self.down(states)), (0, 1), value=1.0)

    def matrices(self) -> Tensor:
        """Return what maps `features` to each component's own term, B_j and c_j: [n, R, d, k + 1]."""
        return torch.cat([self.up.weight, self.up.bias[..., None]], -1).unflatten(1, self.shape[1:])

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize with components that differ a little: equal ones would get equal gradients."""
        self.down.initialize()
        self.up.initialize(0.1)
        self.up.bias.normal_(std=0.1)
