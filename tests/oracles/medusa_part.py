"""Medusa's heads written out from their weights in plain float64, the window by the table of all windows."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.parallel.config import MedusaHeadsConfig
from tests.oracles.enumeration import enumerate_windows
from tests.oracles.windows import WindowTable


class MedusaPartOracle:
    """The law of the tokens after one that is known, which no head reads.

    weights: by their names in the part.
    """

    def __init__(self, config: MedusaHeadsConfig, weights: dict[str, Tensor]) -> None:
        self.config = config
        self.weights = {name: tensor.double() for name, tensor in weights.items()}

    def table(self, state: Tensor, token: int, temperature: float = 1.0) -> WindowTable:
        """Of all drafts after ``token``, which ``state`` [d] predicted."""
        leaves = torch.stack([self._logits(state.double(), head) for head in range(self.config.heads)])
        laws = (leaves / temperature).softmax(-1)[:, None].numpy()
        return WindowTable(enumerate_windows("ff", laws, []))

    def _logits(self, x: Tensor, head: int) -> Tensor:
        """Of one head, [V]."""
        for layer in range(self.config.layers):
            weight, bias = (self.weights[f"layers.{layer}.{name}"][head] for name in ("weight", "bias"))
            inner = weight @ x + bias
            x = x + inner * torch.sigmoid(inner)
        return self.weights[f"outputs.{0 if self.config.shared_output else head}.weight"] @ x
