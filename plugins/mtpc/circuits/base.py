"""What every circuit computes; the circuit types differ in how their latent variables depend on each other.

Notation: B batch, n window, R rank (components per position), V vocabulary, P prefixes of one request.
x_i is the token at position i of the window and z_i its component.
A circuit object holds only the structure. Its parameters come with each call, because a head computes them from the
hidden state (MTPC paper, arXiv 2511.11346, section 3.3). Each type implements two primitives:

- ``beliefs``: log q(z_i = j, x_<i), the component of each position jointly with the tokens before it;
- ``start`` and ``advance``: q(z_i = j | x_<i) one token at a time, for any number of prefixes in parallel.

No operation synchronizes with the host or depends on values in its shapes, so each can be captured in a CUDA graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from mtpc.circuits.params import CircuitParams

# The posterior of the latent variables after P prefixes of each request: tensors [B, P, R], as many as the circuit type
# needs at a position. The last is the belief of the next position, log q(z_i = j | x_<i) up to a constant per prefix.
State = tuple[Tensor, ...]


class Circuit(nn.Module, ABC):
    """A smooth, decomposable, normalized circuit over a window of n tokens (MTPC paper, section 3.1, equation 3).

    To draft, call `start` once, then `conditional` and `advance` in turn for the positions 0..n - 2. All components are
    summed out of a conditional (Basharin et al. 2025, equations 11 to 13), so verification knows what was drawn from.

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
