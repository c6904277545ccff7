"""The head of a circuit: from the hidden state to circuit parameters (MTPC paper, section 3.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import Circuit, CircuitParams
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.leaves import SharedLeaves, TableLeaves
from mtpc.parallel.sums import SumHead

IDENTITY_BIAS = 4.0


class Trunk(nn.Module):
    """A residual layer in front of the head: h + W2 silu(W1 h + E x), with x = x_{t+1} where the token is an input.

    The token costs one row lookup and no multiplication.
    """

    def __init__(self, hidden_size: int, size: int, vocab_size: int | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, size, bias=False)
        self.down = nn.Linear(size, hidden_size, bias=False)
        self.token = None if vocab_size is None else nn.Embedding(vocab_size, size)

    def forward(self, hidden: Tensor, token: Tensor) -> Tensor:
        """Map hidden [B, d] and token int64 [B] to [B, d]."""
        inner = self.up(hidden)
        if self.token is not None:
            inner = inner + self.token(token)
        return hidden + self.down(F.silu(inner))

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize as the identity."""
        self.up.weight.normal_(std=self.up.in_features**-0.5)
        self.down.weight.zero_()
        if self.token is not None:
            self.token.weight.normal_(std=0.5)


class CircuitHead(nn.Module):
    """Maps the target's hidden state, and x_{t+1} where configured, to the parameters of a circuit."""

    def __init__(self, config: CircuitConfig, circuit: Circuit) -> None:
        super().__init__()
        d, n, r, v = config.hidden_size, config.circuit_window, config.rank, config.vocab_size
        self.trunk = Trunk(d, config.trunk_size, v if config.token_input else None) if config.trunk_size else None
        self.leaves: TableLeaves | SharedLeaves
        if config.leaves == "table":
            self.leaves = TableLeaves(n, r, v, d)
        else:
            self.leaves = SharedLeaves(n, r, v, d, config.leaf_features, config.component_features)
        self.sums = SumHead(circuit.sum_shapes(), d, config.sum_features) if circuit.sum_shapes() else None

    def states(self, hidden: Tensor, token: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute what the leaves are made of, and the sums.

        Args:
            hidden: [B, d], after the target's final norm.
            token: int64 [B], x_{t+1}; read where the configuration has ``token_input``.

        Returns:
            Leaf states by position, [B, n, ...], and unnormalized sums, float32.
        """
        features = hidden if self.trunk is None else self.trunk(hidden, token)
        sums = self.sums(features) if self.sums is not None else ()
        return self.leaves.states(features), tuple(weights.float() for weights in sums)

    def logits(self, hidden: Tensor, token: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute unnormalized leaves [B, n, R, V] and sums, float32, from the inputs of `states`."""
        states, sums = self.states(hidden, token)
        return self.leaves.logits(states, slice(None)).float(), sums

    def forward(self, hidden: Tensor, token: Tensor, temperature: Tensor | None = None) -> CircuitParams:
        """Compute circuit parameters.

        Args:
            hidden: See `states`.
            token: See `states`.
            temperature: [B], positive; tempers the parameters like `mtpc.circuits.temper`. None: 1.
        """
        return to_circuit_params(*self.logits(hidden, token), temperature)

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
        self.leaves.initialize(unembedding, first_from_target=self.trunk is None or self.trunk.token is None)
        if self.sums is not None:
            self.sums.initialize(IDENTITY_BIAS)


def to_circuit_params(leaves: Tensor, sums: tuple[Tensor, ...], temperature: Tensor | None = None) -> CircuitParams:
    """Normalize a head's logits to circuit parameters.

    Args:
        leaves: Unnormalized, [B, n, R, V].
        sums: Unnormalized, see `Circuit.sum_shapes`.
        temperature: [B], positive. None: 1.

    Returns:
        Log-parameters.
    """
    leaves, *sums_at = (torch.log_softmax(tempered(weights, temperature), -1) for weights in (leaves, *sums))
    return CircuitParams(leaves, tuple(sums_at))


def tempered(logits: Tensor, temperature: Tensor | None) -> Tensor:
    """Divide logits [B, ...] by a temperature [B] > 0, where one is given."""
    return logits if temperature is None else logits / temperature.view(-1, *[1] * (logits.ndim - 1))
