"""CP: a mixture of fully factorised components (MTPC paper, equation CP)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams, exclusive_cumsum


class CanonicalPolyadic(Circuit):
    """One latent variable for the whole window; sums: (log w [B, R],)."""

    kind = "cp"

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.rank,),)

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """All positions at once: the component's weight times the tokens before, a cumulative sum."""
        return sums[0][:, None] + exclusive_cumsum(evidence)

    def start(self, params: CircuitParams) -> State:
        return (params.sums[0][:, None],)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        return (state[0] + evidence,)

    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        return (torch.log_softmax(sums[0] + first, -1),)
