"""Types of draft layers, and the targets that a drafter with such layers can be trained for."""

from __future__ import annotations

from typing import Literal

LayerType = Literal["llama", "qwen2", "qwen3"]
# The layer type by the target's model_type. For a mixture of experts the draft layer is dense.
LAYER_TYPES: dict[str, LayerType] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "mimo": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
}
