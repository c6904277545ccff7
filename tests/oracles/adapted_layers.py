"""The target's last layers with their adapters merged into the weights: float64, no cache, no transformers."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from tests.oracles.draft_layers import DraftLayersOracle, Row


def merged_weights(part: AdaptedLayers, adapters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the layers and the final norm, by the names of `DraftLayersOracle`: W + alpha / r B A."""
    weights = {"final_layernorm.weight": part.target.norm.weight.double()}
    for index, number in enumerate(part.config.layer_numbers):
        for name, tensor in part.target.layers[number].state_dict().items():
            weights[f"blocks.{index}.{name}"] = tensor.double()
    for name, up in adapters.items():
        if name.endswith(".lora_B.weight"):
            down = adapters[name.replace("lora_B", "lora_A")].double()
            product = part.config.alpha / part.config.rank * up.double() @ down
            weights[name.replace("layers.", "blocks.", 1).replace(".lora_B", "")] += product
    return weights


class AdaptedLayersOracle(DraftLayersOracle):
    """Layers that read states and no tokens, and draft nothing."""

    def read(self, row: Row) -> Tensor:
        """The state, as it is."""
        return row.previous.double()

    def states(self, below: Tensor) -> Tensor:
        """The states after the final norm, [T, d], from those below the layers [T, d]."""
        rows = [Row(0, state, position) for position, state in enumerate(below)]
        return torch.stack([self.last_state(rows[: end + 1]) for end in range(len(rows))])
