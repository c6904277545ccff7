"""The head of a circuit: from the hidden state to circuit parameters (MTPC paper, section 3.3)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import Circuit, CircuitParams
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.leaves import HeadLeaves, SharedLeaves, TableLeaves
from mtpc.parallel.sums import SumHead

IDENTITY_BIAS = 4.0
EPS = 1e-6


class Trunk(nn.Module):
    """A residual layer in front of the head: h + W2 silu(W1 h + E x), with x = x_{t+1} where the token is an input.

    E x is a row of a table, which costs no multiplication, or a projection of the normed embedding of the target.

    Args:
        hidden_size: d.
        size: Width of the layer.
        source: Where E x comes from: "table", "embedding", or None: the token is no input.
        vocab_size: V.
    """

    def __init__(
        self, hidden_size: int, size: int, source: Literal["table", "embedding"] | None = None, vocab_size: int = 0
    ) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, size, bias=False)
        self.down = nn.Linear(size, hidden_size, bias=False)
        self.token = nn.Embedding(vocab_size, size) if source == "table" else None
        self.norm = nn.RMSNorm(hidden_size, EPS) if source == "embedding" else None
        self.embedding = nn.Linear(hidden_size, size, bias=False) if source == "embedding" else None

    def forward(self, hidden: Tensor, token: Tensor, embedding: Tensor | None = None) -> Tensor:
        """Map hidden [B, d], token int64 [B] and the target's embedding of it, [B, d] or None, to [B, d]."""
        inner = self.up(hidden)
        if self.token is not None:
            inner = inner + self.token(token)
        if self.norm is not None and self.embedding is not None and embedding is not None:
            inner = inner + self.embedding(self.norm(embedding))
        return hidden + self.down(F.silu(inner))

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize as the identity."""
        self.up.weight.normal_(std=self.up.in_features**-0.5)
        self.down.weight.zero_()
        if self.token is not None:
            self.token.weight.normal_(std=0.5)
        if self.embedding is not None:
            self.embedding.weight.normal_(std=self.embedding.in_features**-0.5)


class CircuitHead(nn.Module):
    """Maps the target's hidden state, and x_{t+1} where configured, to the parameters of a circuit."""

    def __init__(self, config: CircuitConfig, circuit: Circuit) -> None:
        super().__init__()
        d, n, r, v = config.hidden_size, config.circuit_window, config.rank, config.vocab_size
        source: Literal["table", "embedding"] = "embedding" if config.leaves == "target" else "table"
        self.trunk = None
        if config.trunk_size:
            self.trunk = Trunk(d, config.trunk_size, source if config.token_input else None, v)
        self.leaves: TableLeaves | SharedLeaves | HeadLeaves
        if config.leaves == "table":
            self.leaves = TableLeaves(n, r, v, d)
        elif config.leaves == "target":
            self.leaves = HeadLeaves(n, r, d, config.leaf_features, config.component_features)
        else:
            self.leaves = SharedLeaves(n, r, v, d, config.leaf_features, config.component_features)
        self.sums = SumHead(circuit.sum_shapes(), d, config.sum_features) if circuit.sum_shapes() else None

    def states(
        self, hidden: Tensor, token: Tensor, embedding: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute what the leaves are made of, and the sums.

        Args:
            hidden: [B, d], after the target's final norm.
            token: int64 [B], x_{t+1}; read where the configuration has ``token_input``.
            embedding: [B, d], the target's embedding of x_{t+1}; read with ``token_input`` and leaves "target".

        Returns:
            Leaf states by position, [B, n, ...], and unnormalized sums, float32.
        """
        features, sums = self.features(hidden, token, embedding)
        return self.leaves.states(features), sums

    def features(
        self, hidden: Tensor, token: Tensor, embedding: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute what leaf states are computed from, [B, d], and the sums, from the inputs of `states`."""
        features = hidden if self.trunk is None else self.trunk(hidden, token, embedding)
        sums = self.sums(features) if self.sums is not None else ()
        return features, tuple(weights.float() for weights in sums)

    def logits(self, hidden: Tensor, token: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute unnormalized leaves [B, n, R, V] and sums, float32, from the inputs of `states`.

        The leaves must not be those of the target's output head.
        """
        states, sums = self.states(hidden, token)
        assert not isinstance(self.leaves, HeadLeaves)
        return self.leaves.logits(states, slice(None)).float(), sums

    def forward(self, hidden: Tensor, token: Tensor) -> CircuitParams:
        """Compute circuit parameters from the inputs of `logits`."""
        return to_circuit_params(*self.logits(hidden, token))

    def leading(self, circuit: Circuit, window: int) -> dict[str, Tensor]:
        """Return the weights of a chain's first positions by name. The trunk's weights belong to no position."""
        parts = {"leaves": self.leaves.leading(window)}
        if self.sums is not None:
            parts["sums"] = self.sums.leading(circuit, window)
        if self.trunk is not None:
            parts["trunk"] = self.trunk.state_dict()
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    @torch.no_grad()
    def initialize(self, unembedding: Tensor) -> None:
        """Initialize for training.

        Args:
            unembedding: [V, d], the target's output head, which the leaves of x_{t+1} start from.
        """
        if self.trunk is not None:
            self.trunk.initialize()
        if isinstance(self.leaves, HeadLeaves):
            self.leaves.initialize()
        else:
            self.leaves.initialize(unembedding, first_from_target=self.trunk is None or self.trunk.token is None)
        if self.sums is not None:
            self.sums.initialize(IDENTITY_BIAS)


def to_circuit_params(leaves: Tensor, sums: tuple[Tensor, ...], temperature: Tensor | None = None) -> CircuitParams:
    """Normalize a head's logits to circuit parameters.

    Args:
        leaves: Unnormalized, [B, n, R, V].
        sums: Unnormalized, see `Circuit.sum_shapes`.
        temperature: T [B], positive; every leaf and sum distribution is raised to the power 1/T. That is not the
            joint distribution to the power 1/T, which is intractable for a mixture. None: 1.

    Returns:
        Log-parameters.
    """
    leaves, *sums_at = (torch.log_softmax(tempered(weights, temperature), -1) for weights in (leaves, *sums))
    return CircuitParams(leaves, tuple(sums_at))


def tempered(logits: Tensor, temperature: Tensor | None) -> Tensor:
    """Divide logits [B, ...] by a temperature [B] > 0, where one is given."""
    return logits if temperature is None else logits / temperature.view(-1, *[1] * (logits.ndim - 1))
