"""FF: all tokens of the window independent (MTPC paper, equation FF)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams, exclusive_cumsum
from mtpc.errors import MTPCError


class FullyFactorized(Circuit):
    """One leaf per position and no latent variable; it cannot use the first token as evidence."""

    kind = "ff"
    max_rank = 1

    def __init__(self, window: int, rank: int = 1) -> None:
        if rank != 1:
            raise MTPCError(f"an FF circuit has rank 1, not {rank}.")
        super().__init__(window, rank)

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ()

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """The log-probability of the tokens before each position, in one cumulative sum."""
        return exclusive_cumsum(evidence)

    def start(self, params: CircuitParams) -> State:
        return (params.leaves.new_zeros(len(params.leaves), 1, 1),)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """The only component is certain."""
        return (torch.zeros_like(evidence),)

    def conditional(self, state: State, probs: Tensor) -> Tensor:
        return probs[:, 0]

    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        return sums
