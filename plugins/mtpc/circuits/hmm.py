"""HMM: a chain of latent variables, one per token (MTPC paper, equation HMM and appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.circuits.base import LatentCircuit, Scan
from mtpc.circuits.params import draw


class HiddenMarkov(LatentCircuit):
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

    def scan(self, sums: tuple[Tensor, ...]) -> Scan:
        initial, transitions = sums
        belief = initial
        for step in range(self.window - 1):
            filtered = belief + (yield belief)
            belief = torch.logsumexp(filtered[:, :, None] + transitions[:, step], 1)
        yield belief

    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        initial, transitions = sums
        return torch.log_softmax(initial + first, -1), transitions

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
