"""FF: independent tokens (MTPC paper, equation FF; Basharin et al. 2025, equation 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams, exclusive_cumsum
from mtpc.errors import MTPCError


class FullyFactorized(Circuit):
    """One leaf per position and no latent variable. The first token is no evidence about the others."""

    kind = "ff"
    max_rank = 1

    def __init__(self, window: int, rank: int = 1) -> None:
        if rank != 1:
            raise MTPCError(f"an FF circuit has rank 1, not {rank}.")
        super().__init__(window, rank)

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return no shapes: there are no sums."""
        return ()

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Return the log-probability of the tokens before each position."""
        return exclusive_cumsum(evidence)

    def start(self, params: CircuitParams) -> State:
        """Return the state of the only component."""
        return (params.leaves.new_zeros(len(params.leaves), 1, 1),)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """Return the same state: the only component has probability 1."""
        return (torch.zeros_like(evidence),)

    def conditional(self, state: State, probs: Tensor) -> Tensor:
        """Return the leaf itself."""
        return probs[:, 0]
