"""What every circuit can do; the kinds differ in how their latent variables hang together.

Notation: B batch, n window, R rank (components per position), V vocabulary.  A circuit object holds
the structure only; its parameters come with each call, because a head computes them from the hidden
state.  Four primitives per kind carry everything else:

- ``beliefs``: log q(z_i = j, x_<i), the component of each position jointly with the tokens before it;
- ``start`` and ``advance``: the same one token at a time, for any number of prefixes side by side;
- ``condition_sums``: the sum weights given the first token;
- ``sample_components``: ancestral sampling of the latent variables.

No operation synchronises with the host or depends on values in its shapes, so each can be captured
in a CUDA graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtpc.circuits.params import CircuitParams, normalise, token_evidence
from mtpc.draw import draw

# What the tokens so far say of the latent variables, for P prefixes of a row: tensors [B, P, R], as many as the kind
# needs at a position.  The last is the belief, log q(z_i = j, x_<i), of the position that comes next.
State = tuple[Tensor, ...]


class Circuit(nn.Module, ABC):
    """A smooth, decomposable, normalised circuit over a window of n tokens (MTPC paper, section 3.1)."""

    kind: ClassVar[str]
    is_chain: ClassVar[bool] = True  # summing out the last tokens leaves the leading parameters as they are

    def __init__(self, window: int, rank: int) -> None:
        super().__init__()
        self.window = window
        self.rank = rank

    # Primitives of a kind

    @abstractmethod
    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of ``CircuitParams.sums`` without the batch axis; the last axis is normalised."""

    @property
    @abstractmethod
    def num_latents(self) -> int:
        """Latent variables of one window, hence uniforms that ``sample_components`` consumes."""

    @abstractmethod
    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        """Sum weights of the circuit given the first token; first: log phi_1j(x_1) [B, R]."""

    @abstractmethod
    def sample_components(self, sums: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        """Ancestral sample of the component of every position: noise [B, num_latents] -> int64 [B, n]."""

    @abstractmethod
    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """log q(z_i = j, x_<i): evidence [B, n, R] = log phi_ij(x_i) -> [B, n, R]."""

    @abstractmethod
    def start(self, params: CircuitParams) -> State:
        """The state of the empty prefix (P = 1), at the first position."""

    @abstractmethod
    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """The state after one more token of each prefix, at position + 1.

        position: that of the token, counted from 0 and not the last; evidence: log phi_j of the token there, [B, P, R].
        Time O(P R) for FF and CP, O(P R^2) for HMM, and for BTree a number of times that is 2 on average.
        """

    def leading_sums(self, sums: tuple[Tensor, ...], window: int) -> tuple[Tensor, ...]:
        """Of a chain: the sum weights of its first positions, as all others are summed out.

        sums: tensors whose first axes are those of `sum_shapes`.
        """
        return sums

    # Operations.  Drafting needs `greedy` and the primitives above, which `mtpc.window.circuit` puts together in fewer
    # passes; all others are the reference for what it computes, for training and for anyone who asks a circuit.

    @property
    def noise_size(self) -> int:
        """Uniforms that one sampled window consumes: one for each latent variable and each token."""
        return self.num_latents + self.window

    def prefix_log_probs(self, params: CircuitParams, x: Tensor) -> Tensor:
        """log q(x_1..x_i) for i = 1..n: x int64 [B, n] -> [B, n].

        Time O(n R) for FF and CP, O(n R^2) for HMM and BTree; memory likewise.
        """
        params = params.upcast()
        evidence = token_evidence(params.leaves, x)
        return torch.logsumexp(self.beliefs(params.sums, evidence) + evidence, -1)

    def log_prob(self, params: CircuitParams, x: Tensor) -> Tensor:
        """log q(x_1..x_n): x int64 [B, n] -> [B].  Cost as `prefix_log_probs`."""
        return self.prefix_log_probs(params, x)[:, -1]

    def conditionals(self, params: CircuitParams, x: Tensor) -> Tensor:
        """log q(x_i = v | x_<i) over the vocabulary, all positions in one pass: [B, n, V].

        x int64 [B, n]; x_n is not read.  A prefix of probability zero gives -inf everywhere.
        Time and memory O(n R V), on top of `prefix_log_probs`.
        """
        params = params.upcast()
        weights = normalise(self.beliefs(params.sums, token_evidence(params.leaves, x)))
        return torch.logsumexp(weights[..., None] + params.leaves, 2)

    def condition(self, params: CircuitParams, first: Tensor) -> CircuitParams:
        """The circuit of q(. | x_1 = first), exact and of the same kind: its first token is certain.

        first: int64 [B], of positive probability.  Time O(R) for CP and HMM, O(R^2 log n) for BTree,
        plus the copy of the leaves.
        """
        params = params.upcast()
        sums = self.condition_sums(params.sums, token_evidence(params.leaves[:, :1], first[:, None])[:, 0])
        certain = torch.full_like(params.leaves[:, :1], -torch.inf)
        index = first[:, None, None, None].expand(-1, 1, params.leaves.shape[2], 1)
        certain = certain.scatter(3, index, 0.0)
        return CircuitParams(torch.cat([certain, params.leaves[:, 1:]], 1), sums)

    def sample(self, params: CircuitParams, noise: Tensor) -> Tensor:
        """Ancestral sample of whole windows (MTPC paper, appendix B.2): int64 [B, n].

        noise: uniforms in [0, 1), [B, noise_size]; equal noise gives equal samples.  All positions are
        drawn at once when their components are known: CP one draw, BTree log2 n levels, HMM along the
        chain.  Time O(n V) plus O(n R^2) for the latent variables of HMM and BTree.
        """
        params = params.upcast()
        components = self.sample_components(params.sums, noise[:, : self.num_latents])
        return draw(select_leaves(params.leaves, components).exp(), noise[:, self.num_latents :])

    def greedy(self, params: CircuitParams, first: Tensor | None = None) -> Tensor:
        """Left-to-right argmax of the exact conditionals: int64 [B, n]; ``first`` [B] fixes x_1.

        The mode of a mixture is intractable.  This approximation is the one that fits verification: a
        greedy verifier accepts a prefix, so each token is the most probable one after those before it,
        with all later positions and all components summed out.  The other usual approximation,
        max-product over components and tokens jointly, needs fewer steps but drafts tokens that are
        likely only under one component.  n dependent steps; time O(n R V) and O(n R^2) for HMM, BTree.
        """
        params = params.upcast()
        probs = params.leaves.exp()
        state, tokens = self.start(params), []
        for position in range(self.window):
            if position == 0 and first is not None:
                token = first[:, None]
            else:
                token = (torch.softmax(state[-1], -1) @ probs[:, position]).argmax(-1)  # [B, 1]
            tokens.append(token)
            if position + 1 < self.window:
                evidence = token_evidence(params.leaves[:, position : position + 1], token)
                state = self.advance(params.sums, position, state, evidence)
        return torch.cat(tokens, 1)


def select_leaves(leaves: Tensor, components: Tensor) -> Tensor:
    """The leaf of each position's component: leaves [B, n, R, V], components int64 [B, n] -> [B, n, V]."""
    index = components[:, :, None, None].expand(-1, -1, 1, leaves.shape[3])
    return leaves.gather(2, index).squeeze(2)
