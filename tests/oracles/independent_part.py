"""Heads in parallel written out from their weights: one network after the other, the circuit by all windows."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.parallel.config import ParallelConfig
from tests.oracles.cases import sum_shapes
from tests.oracles.draft_layers import DraftLayersOracle, Row
from tests.oracles.enumeration import enumerate_windows
from tests.oracles.windows import WindowTable

silu = torch.nn.functional.silu


class ParallelOracle:
    """The law of the tokens after those of the autoregressive part, for a vocabulary and a window that are tiny.

    weights: by their names in the window.  autoregressive: whose projection, norm and output head it shares.
    """

    def __init__(self, config: ParallelConfig, weights: dict[str, Tensor], autoregressive: DraftLayersOracle) -> None:
        self.config, self.autoregressive = config, autoregressive
        self.weights = {name: tensor.double() for name, tensor in weights.items()}
        self._tables: dict[tuple[object, ...], WindowTable] = {}

    def table(self, states: Tensor, tokens: list[int], temperature: float = 1.0) -> WindowTable:
        """Of all drafts after the known ``tokens``, which the states, one each, predicted; both are of all places."""
        key = (*states[-2:].flatten().tolist(), *tokens[-2:], temperature)
        if key not in self._tables:
            both = torch.cat([self.autoregressive.read(Row(tokens[i], states[i], 0)) for i in (-2, -1)])  # [2 d]
            leaves = torch.stack([self._leaves(i, both) for i in range(self.config.positions)])
            sums = [(logits / temperature).softmax(-1).numpy() for logits in self._sums(both)]
            joint = enumerate_windows(self.config.circuit, (leaves / temperature).softmax(-1).numpy(), sums)
            self._tables[key] = WindowTable(joint)
        return self._tables[key]

    def _linear(self, name: str, position: int, x: Tensor) -> Tensor:
        return self.weights[f"{name}.weight"][position] @ x + self.weights[f"{name}.bias"][position]

    def _leaves(self, position: int, both: Tensor) -> Tensor:
        """Logits of one position, [R, V]."""
        x = silu(self._linear("heads.reduce", position, both))
        for block in range(self.config.blocks):
            x = x + silu(self._linear(f"heads.blocks.{block}", position, x))
        states = [x] * self.config.rank
        if self.config.rank > 1:
            inner = silu(self._linear("components.down", position, x))
            added = self._linear("components.up", position, inner)
            states = [x + own for own in added.view(self.config.rank, -1)]
        if "norm.weight" in self.weights:
            eps = self.autoregressive.config.rms_norm_eps
            states = [x * (x.pow(2).mean() + eps).rsqrt() * self.weights["norm.weight"] for x in states]
        return torch.stack([self.autoregressive.logits(x) for x in states])

    def _sums(self, both: Tensor) -> list[Tensor]:
        shapes = sum_shapes(self.config.circuit, self.config.positions, self.config.rank)
        if not shapes:
            return []
        logits = self.weights["sums.weight"] @ (self.weights["sums.reduce.weight"] @ both) + self.weights["sums.bias"]
        sizes = [int(torch.tensor(shape).prod()) for shape in shapes]
        return [part.view(shape) for part, shape in zip(logits.split(sizes), shapes, strict=True)]
