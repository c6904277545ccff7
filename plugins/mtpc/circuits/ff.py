"""FF: all tokens of the window independent (MTPC paper, equation FF)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams, before
from mtpc.errors import MTPCError


class FullyFactorised(Circuit):
    """One leaf per position and no latent variable; it cannot use the first token as evidence."""

    kind = "ff"

    def __init__(self, window: int, rank: int = 1) -> None:
        if rank != 1:
            raise MTPCError(f"an FF circuit has rank 1, not {rank}.")
        super().__init__(window, rank)

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ()

    @property
    def num_latents(self) -> int:
        return 0

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """The log-probability of the tokens before each position, in one cumulative sum."""
        return before(evidence)

    def start(self, params: CircuitParams) -> State:
        return (params.leaves.new_zeros(len(params.leaves), 1, 1),)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        return (state[0] + evidence,)

    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        return sums

    def sample_components(self, sums: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        return noise.new_zeros(noise.shape[0], self.window).long()

    def greedy(self, params: CircuitParams, first: Tensor | None = None) -> Tensor:
        """The mode itself: independent tokens need no approximation."""
        tokens = params.leaves[:, :, 0].argmax(-1)
        return tokens if first is None else torch.cat([first[:, None], tokens[:, 1:]], 1)
