"""Leaf distributions of a circuit from the hidden state (MTPC paper, section 3.3)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.parallel.independent_heads import Components, StackedLinear


class LeafFactors(NamedTuple):
    """Leaf states as a term of the position and one that is linear in features: s_ij = f_i + C_ij a_i.

    An unembedding U maps them to logits U f_i + (U C_ij) a_i. For many states that costs a fraction of U s_ij.

    Attributes:
        positions: f_i, [B, n, m].
        features: a_i, [B, n, k + 1], the last feature is 1. None: one component, whose state is f_i.
        components: C_ij, [n, R, m, k + 1]. None with ``features``.
    """

    positions: Tensor
    features: Tensor | None
    components: Tensor | None


class TableLeaves(nn.Module):
    """The unembedding tensor of the MTPC paper: one table per position and component.

    It has n R V d parameters, all read for every draft, so it suits byte vocabularies.
    """

    def __init__(self, window: int, rank: int, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.shape = (window, rank, vocab_size)
        self.weight = nn.Parameter(torch.zeros(window, rank, vocab_size, hidden_size))

    def states(self, features: Tensor) -> Tensor:
        """Repeat the features for each position: [B, d] -> [B, n, d]."""
        return features[:, None].expand(-1, self.shape[0], -1)

    def logits(self, states: Tensor, positions: slice) -> Tensor:
        """Compute leaf logits of some positions p from their states: [B, p, d] -> [B, p, R, V]."""
        weight = self.weight[positions]
        return F.linear(states[:, 0], weight.flatten(0, 2)).view(-1, *weight.shape[:3])

    def leading(self, window: int) -> dict[str, Tensor]:
        """Return the weights of the first positions by name."""
        return {"weight": self.weight[:window]}

    @torch.no_grad()
    def initialize(self, unembedding: Tensor, first_from_target: bool = True) -> None:
        """Initialize for training.

        Args:
            unembedding: [V, d], the target's output head.
            first_from_target: Whether the first position is x_{t+1} and starts as the target's output head.
        """
        self.weight.normal_(std=0.02)
        if first_from_target:
            self.weight[0] += unembedding


class SharedLeaves(nn.Module):
    """Leaves that share one unembedding of m features: a low-rank form of the MTPC paper's tensor.

    The features of position i and component j are W_i e + c_ij + M_j B_i e. These are a term of the position, a
    constant, and the component's map of k further features of the position. There are n (m + k) d + R m (k + n) + V m
    parameters instead of n R V d.
    """

    def __init__(
        self,
        window: int,
        rank: int,
        vocab_size: int,
        hidden_size: int,
        leaf_features: int,
        component_features: int,
    ) -> None:
        super().__init__()
        self.shape = (window, rank, leaf_features)
        self.split = (leaf_features, component_features)
        self.project = nn.Linear(hidden_size, window * sum(self.split), bias=False)
        self.offset = nn.Parameter(torch.zeros(window, rank, leaf_features))
        self.component = nn.Parameter(torch.zeros(rank * leaf_features, component_features))
        self.unembedding = nn.Parameter(torch.zeros(vocab_size, leaf_features))

    def states(self, features: Tensor) -> Tensor:
        """Compute the features of each component: [B, d] -> [B, n, R, m]."""
        window, _, _ = self.shape
        position, mixed = self.project(features).view(-1, window, sum(self.split)).split(self.split, -1)
        leaf = F.linear(mixed, self.component).view(-1, *self.shape)  # [B, n, R, m]
        return leaf + position[:, :, None] + self.offset

    def factors(self, features: Tensor) -> LeafFactors:
        """Compute the factors of `states`: features [B, d]."""
        window, rank, m = self.shape
        position, mixed = self.project(features).view(-1, window, sum(self.split)).split(self.split, -1)
        contextual = self.component.view(1, rank, m, -1).expand(window, -1, -1, -1)
        return LeafFactors(
            position, F.pad(mixed, (0, 1), value=1.0), torch.cat([contextual, self.offset[..., None]], -1)
        )

    def logits(self, states: Tensor, positions: slice) -> Tensor:
        """Compute leaf logits of some positions p from their states: [B, p, R, m] -> [B, p, R, V]."""
        return F.linear(states, self.unembedding)

    def leading(self, window: int) -> dict[str, Tensor]:
        """Return the weights of the first positions by name; only projection and offsets are per position."""
        project = self.project.weight.unflatten(0, (self.shape[0], -1))  # [n, m + k, d]
        leading = {"project.weight": project[:window].flatten(0, 1), "offset": self.offset[:window]}
        return {**self.state_dict(), **leading}

    @torch.no_grad()
    def initialize(self, unembedding: Tensor, first_from_target: bool = True) -> None:
        """Initialize as `TableLeaves` does; the first position starts as the best rank-m form of the output head."""
        left, scale, right = torch.linalg.svd(unembedding.float(), full_matrices=False)
        m = min(self.split[0], len(scale))
        self.unembedding.normal_(std=0.02)
        self.unembedding[:, :m] += left[:, :m] * scale[:m].sqrt()
        weight = self.project.weight.view(self.shape[0], sum(self.split), -1)
        weight.normal_(std=self.project.in_features**-0.5)
        weight[:, : self.split[0]] *= 0.1
        if first_from_target:
            weight[0, :m] = scale[:m, None].sqrt() * right[:m]
        self.component.normal_(std=0.3 * self.split[1] ** -0.5)
        self.offset.normal_(std=0.3)


class HeadLeaves(nn.Module):
    """Leaves whose unembedding is the target's output head (Basharin et al. 2025, section 3.2).

    The state of position i is f_i = e + U_i silu(D_i e), and that of its component j f_i + c_ij + B_ij silu(A_i f_i).
    n (2 m + (R + 1) k) d parameters; the head adds none.
    """

    def __init__(self, window: int, rank: int, hidden_size: int, leaf_features: int, component_features: int) -> None:
        super().__init__()
        self.window = window
        self.down = StackedLinear(window, hidden_size, leaf_features)
        self.up = StackedLinear(window, leaf_features, hidden_size)
        self.components = Components(window, rank, hidden_size, component_features) if rank > 1 else None

    def states(self, features: Tensor) -> Tensor:
        """Compute the state of each component, which the output head maps to logits: [B, d] -> [B, n, R, d]."""
        states = self._positions(features)
        whole: Tensor = states[:, :, None] if self.components is None else self.components(states)
        return whole

    def _positions(self, features: Tensor) -> Tensor:
        """Compute the state of each position: [B, d] -> [B, n, d]."""
        repeated = features[:, None].expand(-1, self.window, -1)
        states: Tensor = repeated + self.up(F.silu(self.down(repeated)))
        return states

    def factors(self, features: Tensor) -> LeafFactors:
        """Compute the factors of `states`: features [B, d]."""
        states = self._positions(features)
        if self.components is None:
            return LeafFactors(states, None, None)
        return LeafFactors(states, self.components.features(states), self.components.matrices())

    def leading(self, window: int) -> dict[str, Tensor]:
        """Return the weights of the first positions by name."""
        return {name: weight[:window] for name, weight in self.state_dict().items()}

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize so that each position starts as the target's output head, with components that differ a little."""
        self.down.initialize()
        self.up.initialize(0.0)
        if self.components is not None:
            self.components.initialize()
