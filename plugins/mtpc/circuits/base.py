"""What every circuit computes; the circuit types differ in how their latent variables depend on each other.

Notation: B batch, n window, R rank (components per position), V vocabulary, P prefixes of one request.
x_i is the token at position i of the window and z_i its component.
A circuit object holds only the structure. Its parameters come with each call, because a head computes them from the
hidden state (MTPC paper, arXiv 2511.11346, section 3.3). Each type implements three primitives:

- ``beliefs``: log q(z_i = j, x_<i), the component of each position jointly with the tokens before it;
- ``start`` and ``advance``: q(z_i = j | x_<i) one token at a time, for any number of prefixes in parallel;
- ``condition_sums``: the sum weights given the first token.

No operation synchronizes with the host or depends on values in its shapes, so each can be captured in a CUDA graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtpc.circuits.params import CircuitParams, normalize_log, token_evidence
from mtpc.draw import draw

# The posterior of the latent variables after P prefixes of each request: tensors [B, P, R], as many as the circuit type
# needs at a position. The last is the belief of the next position, log q(z_i = j | x_<i) up to a constant per prefix.
State = tuple[Tensor, ...]


class Circuit(nn.Module, ABC):
    """A smooth, decomposable, normalized circuit over a window of n tokens (MTPC paper, section 3.1, equation 3).

    To draft, call `start` once, then `conditional` and `advance` in turn for the positions 0..n - 2.

    Attributes:
        kind: Name in a drafter's configuration.
        max_rank: The largest R; None: any.
        is_chain: Whether summing out the last tokens leaves the leading parameters unchanged.
        window: n.
        rank: R.
    """

    kind: ClassVar[str]
    max_rank: ClassVar[int | None] = None  # None: any
    is_chain: ClassVar[bool] = True  # whether summing out the last tokens leaves the leading parameters unchanged

    def __init__(self, window: int, rank: int) -> None:
        super().__init__()
        self.window = window
        self.rank = rank

    # Primitives of a circuit type

    @abstractmethod
    def sum_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of ``CircuitParams.sums`` without the batch axis; the last axis is normalized."""

    @abstractmethod
    def condition_sums(self, sums: tuple[Tensor, ...], first: Tensor) -> tuple[Tensor, ...]:
        """Return the sum weights of the circuit given the first token.

        Args:
            sums: Log sum weights, [B, ...] each, of `sum_shapes`.
            first: log phi_1j(x_1), [B, R].

        Returns:
            Log sum weights of the same shapes.
        """

    @abstractmethod
    def beliefs(self, sums: tuple[Tensor, ...], evidence: Tensor) -> Tensor:
        """Compute log q(z_i = j, x_<i) for all positions.

        Args:
            sums: Log sum weights, [B, ...] each, of `sum_shapes`.
            evidence: log phi_ij(x_i), [B, n, R].

        Returns:
            [B, n, R].
        """

    @abstractmethod
    def start(self, params: CircuitParams) -> State:
        """Return the state of the empty prefix (P = 1), at the first position."""

    @abstractmethod
    def advance(self, sums: tuple[Tensor, ...], position: int, state: State, evidence: Tensor) -> State:
        """Return the state after one more token of each prefix, at position + 1.

        Time O(P R) for FF and CP, O(P R^2) for HMM. For BTree a call takes a number of O(P R^2) steps that is 2 on
        average.

        Args:
            sums: Log sum weights, [B, ...] each, of `sum_shapes`.
            position: Position of the token, from 0 to n - 2.
            state: The state at this position.
            evidence: log phi_j of the token, [B, P, R].
        """

    def leading_sums(self, sums: tuple[Tensor, ...], window: int) -> tuple[Tensor, ...]:
        """Return the sum weights of a chain's first positions, with all later positions summed out.

        Args:
            sums: Tensors whose first axes are those of `sum_shapes`.
            window: Positions to keep.
        """
        return sums

    def transitions(self, sums: tuple[Tensor, ...]) -> Tensor | None:
        """Return what a chain does to its component from each position to the next.

        Args:
            sums: Log sum weights, [B, ...] each, of `sum_shapes`.

        Returns:
            Log-probabilities of the component at position i + 1 given that at i, [B, n - 1, R, R]. None: it stays the
            same.
        """
        return None

    def conditional(self, state: State, probs: Tensor) -> Tensor:
        """Return q(x_i = v | x_<i) for one prefix per request.

        Args:
            state: The state at position i, with P = 1.
            probs: phi_ij(v), [B, R, V].

        Returns:
            [B, V].
        """
        return (state[-1].softmax(-1) @ probs)[:, 0]

    # Operations. Drafting goes from left to right like `sample` and `greedy`, but need not hold all leaves at once (see
    # `mtpc.parallel.joint`). The other operations are for evaluation, training and tests.

    def prefix_log_probs(self, params: CircuitParams, x: Tensor) -> Tensor:
        """Compute log q(x_1..x_i) for i = 1..n.

        Time and memory O(n R) for FF and CP, O(n R^2) for HMM and BTree.

        Args:
            params: Of B circuits.
            x: int64 [B, n].

        Returns:
            [B, n].
        """
        params = params.upcast()
        evidence = token_evidence(params.leaves, x)
        return torch.logsumexp(self.beliefs(params.sums, evidence) + evidence, -1)

    def log_prob(self, params: CircuitParams, x: Tensor) -> Tensor:
        """Compute log q(x_1..x_n), at the cost of `prefix_log_probs`.

        Args:
            params: Of B circuits.
            x: int64 [B, n].

        Returns:
            [B].
        """
        return self.prefix_log_probs(params, x)[:, -1]

    def conditionals(self, params: CircuitParams, x: Tensor) -> Tensor:
        """Compute log q(x_i = v | x_<i) over the vocabulary for all positions in one pass.

        A prefix of probability zero gives -inf everywhere.
        Time and memory O(n R V), in addition to `prefix_log_probs`.

        Args:
            params: Of B circuits.
            x: int64 [B, n]; x_n is not read.

        Returns:
            [B, n, V].
        """
        params = params.upcast()
        weights = normalize_log(self.beliefs(params.sums, token_evidence(params.leaves, x)))
        return torch.logsumexp(weights[..., None] + params.leaves, 2)

    def condition(self, params: CircuitParams, first: Tensor) -> CircuitParams:
        """Return the circuit of q(. | x_1 = first), exact and of the same type; its first token has probability 1.

        Time O(R) for CP and HMM, O(R^2 log n) for BTree, plus a copy of the leaves.

        Args:
            params: Of B circuits.
            first: int64 [B], tokens of positive probability.
        """
        params = params.upcast()
        sums = self.condition_sums(params.sums, token_evidence(params.leaves[:, :1], first[:, None])[:, 0])
        certain = torch.full_like(params.leaves[:, :1], -torch.inf)
        index = first[:, None, None, None].expand(-1, 1, params.leaves.shape[2], 1)
        certain = certain.scatter(3, index, 0.0)
        return CircuitParams(torch.cat([certain, params.leaves[:, 1:]], 1), sums)

    def sample(self, params: CircuitParams, noise: Tensor) -> Tensor:
        """Sample whole windows, each token from its exact conditional with all components summed out.

        This is the sequential scheme of Basharin et al. 2025 (CP tensor decomposition, equations 11 to 13) for any
        circuit. Unlike sampling the latent variables (MTPC paper, algorithm 1) it gives the conditionals that
        verification needs.

        Args:
            params: Of B circuits.
            noise: Uniforms in [0, 1), [B, n], one per token. Equal noise gives equal samples.

        Returns:
            int64 [B, n].
        """
        return self._left_to_right(params, lambda probs, position: draw(probs, noise[:, position]))

    def greedy(self, params: CircuitParams, first: Tensor | None = None) -> Tensor:
        """Choose the argmax of each exact conditional from left to right.

        The mode of a mixture is intractable. This approximation fits verification: a greedy verifier accepts a prefix,
        so each token is the most probable one after those before it, with later positions and all components summed
        out. Max-product over components and tokens jointly needs fewer steps, but drafts tokens that are likely only
        under one component. Here n dependent steps take O(n R V), plus O(n R^2) for HMM and BTree.

        Args:
            params: Of B circuits.
            first: int64 [B], fixes x_1. None: x_1 is chosen as well.

        Returns:
            int64 [B, n].
        """
        return self._left_to_right(params, lambda probs, _: probs.argmax(-1), first)

    def _left_to_right(
        self, params: CircuitParams, choose: Callable[[Tensor, int], Tensor], first: Tensor | None = None
    ) -> Tensor:
        """Return tokens int64 [B, n]; ``choose`` maps q(x_i | x_<i), [B, V], and the position i to tokens."""
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
