"""HMM: a chain of latent variables, one per token (MTPC paper, equation HMM and appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams


class HiddenMarkov(Circuit):
    """A contextual, inhomogeneous hidden Markov model: each position has its own transition matrix.

    The sums are (initial [B, R], transitions [B, n - 1, R, R]). transitions[b, i, a, c] is the log-probability that
    position i + 1 is in state c when position i is in state a, with positions counted from 0.
    """

    kind = "hmm"

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the initial distribution and of the transition matrices."""
        return ((self.rank,), (self.window - 1, self.rank, self.rank))

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Compute the forward messages of the chain, in n - 1 dependent steps."""
        initial, transitions = sums
        beliefs = [initial]
        for position in range(self.window - 1):
            filtered = (beliefs[-1] + evidence[:, position])[..., None]
            beliefs.append(torch.logsumexp(filtered + transitions[:, position], 1))
        return torch.stack(beliefs, 1)

    def start(self, params: CircuitParams) -> State:
        """Return the initial distribution as the state."""
        return (params.sums[0][:, None],)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """Filter by the token, then apply one transition, as a product of probabilities.

        A component lost to underflow gives no token that can be drawn.
        """
        filtered = (state[0] + evidence).softmax(-1)  # [B, P, R]
        return ((filtered @ sums[1][:, position].exp()).log(),)

    def transitions(self, sums: tuple[Tensor, ...]) -> Tensor:
        """Return the transition matrices."""
        return sums[1]

    def leading_sums(self, sums: tuple[Tensor, ...], window: int) -> tuple[Tensor, ...]:
        """Return the initial distribution and the first window - 1 transitions."""
        initial, transitions = sums
        return initial, transitions[: window - 1]
