"""HMM: a chain of latent variables, one per token (MTPC paper, equation HMM and appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams


class HiddenMarkov(Circuit):
    """Contextual and inhomogeneous: every step has a transition matrix of its own.

    sums: (initial [B, R], transitions [B, n - 1, R, R]) with transitions[b, i, a, c] the log-probability
    that position i + 2 is in state c when position i + 1 is in state a.
    """

    kind = "hmm"

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.rank,), (self.window - 1, self.rank, self.rank))

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Along the chain, in n - 1 dependent steps."""
        initial, transitions = sums
        beliefs = [initial]
        for position in range(self.window - 1):
            filtered = (beliefs[-1] + evidence[:, position])[..., None]
            beliefs.append(torch.logsumexp(filtered + transitions[:, position], 1))
        return torch.stack(beliefs, 1)

    def start(self, params: CircuitParams) -> State:
        return (params.sums[0][:, None],)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """In the space of probabilities: a product.  A component lost to underflow makes no token that can be drawn."""
        filtered = (state[0] + evidence).softmax(-1)  # [B, P, R]
        return ((filtered @ sums[1][:, position].exp()).log(),)

    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        initial, transitions = sums
        return torch.log_softmax(initial + first, -1), transitions

    def leading_sums(self, sums: tuple[Tensor, ...], window: int) -> tuple[Tensor, ...]:
        initial, transitions = sums
        return initial, transitions[: window - 1]
