"""The kinds of draft layers, and the model types of the targets that a drafter with such layers is trained for."""

from __future__ import annotations

from typing import Literal

LayerType = Literal["llama", "qwen2", "qwen3"]
# By a target's model_type.  Behind a mixture of experts the draft layer is dense.
LAYER_TYPES: dict[str, LayerType] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "mimo": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
}
