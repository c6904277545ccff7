"""What every circuit can do; the kinds differ in how their latent variables hang together.

Notation: B batch, n window, R rank (components per position), V vocabulary.  A circuit object holds
the structure only; its parameters come with each call, because a head computes them from the hidden
state.  Three primitives per kind carry everything else:

- ``beliefs``: log q(z_i = j, x_<i), the component of each position jointly with the tokens before it;
- ``start`` and ``advance``: q(z_i = j | x_<i) one token at a time, for any number of prefixes side by side;
- ``condition_sums``: the sum weights given the first token.

No operation synchronises with the host or depends on values in its shapes, so each can be captured
in a CUDA graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtpc.circuits.params import CircuitParams, normalize_log, token_evidence
from mtpc.draw import draw

# What the tokens so far say of the latent variables, for P prefixes of a row: tensors [B, P, R], as many as the kind
# needs at a position.  The last is the belief of the position that comes next, log q(z_i = j | x_<i) up to a constant
# of the prefix.
State = tuple[Tensor, ...]


class Circuit(nn.Module, ABC):
    """A smooth, decomposable, normalised circuit over a window of n tokens (MTPC paper, section 3.1)."""

    kind: ClassVar[str]
    max_rank: ClassVar[int | None] = None  # R at most; None: any number
    is_chain: ClassVar[bool] = True  # summing out the last tokens leaves the leading parameters as they are

    def __init__(self, window: int, rank: int) -> None:
        super().__init__()
        self.window = window
        self.rank = rank

    # Primitives of a kind

    @abstractmethod
    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of ``CircuitParams.sums`` without the batch axis; the last axis is normalised."""

    @abstractmethod
    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        """Sum weights of the circuit given the first token; first: log phi_1j(x_1) [B, R]."""

    @abstractmethod
    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Log q(z_i = j, x_<i): evidence [B, n, R] = log phi_ij(x_i) -> [B, n, R]."""

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

    def conditional(self, state: State, probs: Tensor) -> Tensor:
        """q(x_i = v | x_<i) after one prefix a row, [B, V]; probs: phi_ij(v), [B, R, V]."""
        return (state[-1].softmax(-1) @ probs)[:, 0]

    # Operations.  Drafting goes from left to right as `sample` and `greedy` do, but need not hold all leaves at once
    # (see `mtpc.parallel.joint`); all others are for scores, for training and for anyone who asks a circuit.

    def prefix_log_probs(self, params: CircuitParams, x: Tensor) -> Tensor:
        """Log q(x_1..x_i) for i = 1..n: x int64 [B, n] -> [B, n].

        Time O(n R) for FF and CP, O(n R^2) for HMM and BTree; memory likewise.
        """
        params = params.upcast()
        evidence = token_evidence(params.leaves, x)
        return torch.logsumexp(self.beliefs(params.sums, evidence) + evidence, -1)

    def log_prob(self, params: CircuitParams, x: Tensor) -> Tensor:
        """Log q(x_1..x_n): x int64 [B, n] -> [B].  Cost as `prefix_log_probs`."""
        return self.prefix_log_probs(params, x)[:, -1]

    def conditionals(self, params: CircuitParams, x: Tensor) -> Tensor:
        """Log q(x_i = v | x_<i) over the vocabulary, all positions in one pass: [B, n, V].

        x int64 [B, n]; x_n is not read.  A prefix of probability zero gives -inf everywhere.
        Time and memory O(n R V), on top of `prefix_log_probs`.
        """
        params = params.upcast()
        weights = normalize_log(self.beliefs(params.sums, token_evidence(params.leaves, x)))
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
        """A sample of whole windows: int64 [B, n].

        noise: uniforms in [0, 1), [B, n], one for each token; equal noise gives equal samples.  Each token is drawn
        from its exact conditional, all components summed out.  Cost as `greedy`.
        """
        return self._left_to_right(params, lambda probs, position: draw(probs, noise[:, position]))

    def greedy(self, params: CircuitParams, first: Tensor | None = None) -> Tensor:
        """Left-to-right argmax of the exact conditionals: int64 [B, n]; ``first`` [B] fixes x_1.

        The mode of a mixture is intractable.  This approximation is the one that fits verification: a
        greedy verifier accepts a prefix, so each token is the most probable one after those before it,
        with all later positions and all components summed out.  The other usual approximation,
        max-product over components and tokens jointly, needs fewer steps but drafts tokens that are
        likely only under one component.  n dependent steps; time O(n R V) and O(n R^2) for HMM, BTree.
        """
        return self._left_to_right(params, lambda probs, _: probs.argmax(-1), first)

    def _left_to_right(
        self, params: CircuitParams, choose: Callable[[Tensor, int], Tensor], first: Tensor | None = None
    ) -> Tensor:
        """Tokens as they are chosen from q(x_i | x_<i), [B, V], and the position."""
        params = params.upcast()
        state, tokens = self.start(params), []
        for position in range(self.window):
            if position == 0 and first is not None:
                token = first
            else:
                token = choose(self.conditional(state, params.leaves[:, position].exp()), position)
            tokens.append(token)
            if position + 1 < self.window:
                evidence = token_evidence(params.leaves[:, position : position + 1], token[:, None])
                state = self.advance(params.sums, position, state, evidence)
        return torch.stack(tokens, 1)
