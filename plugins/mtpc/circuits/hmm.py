"""HMM: a chain of latent variables, one per token (MTPC paper, equation HMM and appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import Circuit, State
from mtpc.circuits.params import CircuitParams
from mtpc.draw import draw


class HiddenMarkov(Circuit):
    """Contextual and inhomogeneous: every step has a transition matrix of its own.

    sums: (initial [B, R], transitions [B, n - 1, R, R]) with transitions[b, i, a, c] the log-probability
    that position i + 2 is in state c when position i + 1 is in state a.
    """

    kind = "hmm"

    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.rank,), (self.window - 1, self.rank, self.rank))

    @property
    def num_latents(self) -> int:
        return self.window

    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Along the chain, in n - 1 dependent steps."""
        state: State = (sums[0][:, None],)
        beliefs = [state[-1]]
        for position in range(self.window - 1):
            state = self.advance(sums, position, state, evidence[:, position, None])
            beliefs.append(state[-1])
        return torch.cat(beliefs, 1)

    def start(self, params: CircuitParams) -> State:
        return (params.sums[0][:, None],)

    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        filtered = state[0] + evidence  # [B, P, R]
        return (torch.logsumexp(filtered[..., None] + sums[1][:, position, None], 2),)

    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        initial, transitions = sums
        return torch.log_softmax(initial + first, -1), transitions

    def leading_sums(self, sums: tuple[Tensor, ...], window: int) -> tuple[Tensor, ...]:
        initial, transitions = sums
        return initial, transitions[: window - 1]

    def sample_components(self, sums: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        """The successor of every state is drawn for all steps at once; the chain then only follows them.

        The successors of one step share their uniform, which leaves the law of the one path taken as it is.
        """
        initial, transitions = sums
        states = [draw(initial.exp(), noise[:, 0])]
        successors = draw(transitions.exp(), noise[:, 1:, None].expand(-1, -1, self.rank))  # [B, n - 1, R]
        for step in range(self.window - 1):
            states.append(successors[:, step].gather(1, states[-1][:, None])[:, 0])
        return torch.stack(states, 1)
