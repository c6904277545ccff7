"""A circuit window written out from its weights: the head in plain float64, the circuit by the table of all windows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtpc.parallel.config import CircuitConfig
from mtpc.target_head.shared import SharedHead
from tests.oracles.cases import sum_shapes
from tests.oracles.enumeration import enumerate_windows
from tests.oracles.windows import WindowTable

silu = torch.nn.functional.silu


class CircuitPartOracle:
    """The law of the tokens after one that is known, for a vocabulary and a window that are tiny.

    weights: by their names in the head.  target: embedding and output head, which leaves "target" read.
    """

    def __init__(self, config: CircuitConfig, weights: dict[str, Tensor], target: SharedHead | None = None) -> None:
        self.config = config
        self.weights = {name: tensor.double() for name, tensor in weights.items()}
        self.target = target
        self.circuit_window = config.window - config.token_input
        self._tables: dict[tuple[object, ...], WindowTable] = {}

    def table(self, state: Tensor, token: int, temperature: float = 1.0) -> WindowTable:
        """Of all drafts after ``token``, which ``state`` [d] predicted; the same for the same arguments."""
        key = (*state.tolist(), token, temperature)
        if key not in self._tables:
            self._tables[key] = self._enumerated(state, token, temperature)
        return self._tables[key]

    def _enumerated(self, state: Tensor, token: int, temperature: float) -> WindowTable:
        features = self._trunk(state.double(), token)
        leaves = (self._leaves(features) / temperature).softmax(-1).numpy()
        sums = [(logits / temperature).softmax(-1).numpy() for logits in self._sums(features)]
        joint = enumerate_windows(self.config.circuit, leaves, sums)
        if self.target is not None and self.target.ids is not None:  # the tokens outside of them are never drafted
            ids, over_rows = self.target.ids.tolist(), joint
            joint = np.zeros((self.config.vocab_size,) * over_rows.ndim)
            joint[np.ix_(*[ids] * over_rows.ndim)] = over_rows
        if self.config.token_input:
            return WindowTable(joint)
        known = joint[token] if joint[token].any() else joint.sum(0)  # a token that is never drafted is no evidence
        return WindowTable(known / known.sum())

    @property
    def target_head(self) -> SharedHead:
        """Of leaves that read it."""
        assert self.target is not None
        return self.target

    def _trunk(self, state: Tensor, token: int) -> Tensor:
        if not self.config.trunk_size:
            return state
        inner = self.weights["trunk.up.weight"] @ state
        if self.config.token_input and self.config.leaves == "target":
            x = self.target_head.embedding[token].double()
            normed = x * (x.pow(2).mean() + 1e-6).rsqrt() * self.weights["trunk.norm.weight"]
            inner = inner + self.weights["trunk.embedding.weight"] @ normed
        elif self.config.token_input:
            inner = inner + self.weights["trunk.token.weight"][token]
        return state + self.weights["trunk.down.weight"] @ silu(inner)

    def _leaves(self, features: Tensor) -> Tensor:
        """Logits [n, R, V]."""
        if self.config.leaves == "table":
            return self.weights["leaves.weight"] @ features
        if self.config.leaves == "target":
            rows = self.target_head.rows.double()
            return torch.stack([self._states(i, features) @ rows.T for i in range(self.circuit_window)])
        m, k = self.config.leaf_features, self.config.component_features
        logits = []
        for i in range(self.circuit_window):
            own = self.weights["leaves.project.weight"][i * (m + k) : (i + 1) * (m + k)] @ features
            for j in range(self.config.rank):
                mixed = self.weights["leaves.component"][j * m : (j + 1) * m] @ own[m:]
                leaf = own[:m] + self.weights["leaves.offset"][i, j] + mixed
                logits.append(self.weights["leaves.unembedding"] @ leaf)
        return torch.stack(logits).view(self.circuit_window, self.config.rank, -1)

    def _states(self, position: int, features: Tensor) -> Tensor:
        """States of one position's components, which the target's output head maps to logits, [R, d]."""
        x = features + self._linear("up", position, silu(self._linear("down", position, features)))
        if self.config.rank == 1:
            return x[None]
        inner = silu(self._linear("components.down", position, x))
        return x + self._linear("components.up", position, inner).view(self.config.rank, -1)

    def _linear(self, name: str, position: int, x: Tensor) -> Tensor:
        return self.weights[f"leaves.{name}.weight"][position] @ x + self.weights[f"leaves.{name}.bias"][position]

    def _sums(self, features: Tensor) -> list[Tensor]:
        shapes = sum_shapes(self.config.circuit, self.circuit_window, self.config.rank)
        if not shapes:
            return []
        if self.config.sum_features:
            features = self.weights["sums.reduce.weight"] @ features
        logits = self.weights["sums.weight"] @ features + self.weights["sums.bias"]
        sizes = [int(torch.tensor(shape).prod()) for shape in shapes]
        return [part.view(shape) for part, shape in zip(logits.split(sizes), shapes, strict=True)]
