"""CP: a mixture of R fully factorized components (MTPC paper, equation CP; Basharin et al. 2025, equation 2)."""

from __future__ import annotations

from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams, exclusive_cumsum


class CanonicalPolyadic(Circuit):
    """One latent variable for the whole window. The sums are (log w [B, R],)."""

    kind = "cp"

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the mixture weights."""
        return ((self.rank,),)

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Compute all beliefs at once: log weight of the component plus log-likelihood of the tokens before."""
        return sums[0][:, None] + exclusive_cumsum(evidence)

    def start(self, params: CircuitParams) -> State:
        """Return the mixture weights as the state."""
        return (params.sums[0][:, None],)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """Add the token's log-likelihood to each component."""
        return (state[0] + evidence,)
