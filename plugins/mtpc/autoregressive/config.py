"""Configuration of an autoregressive part: decoder layers of the target's type behind an input projection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from mtpc.autoregressive.kinds import LAYER_TYPES, LayerType
from mtpc.autoregressive.part import TargetInterface
from mtpc.autoregressive.rope import MAX_POSITIONS, check_rope
from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict
from mtpc.files.target import Heads, HiddenSize, VocabSize

MAX_LAYERS = 64
FIXED_ATTENTION_BIAS = {"qwen2": True, "qwen3": False}  # layer types that allow only one attention_bias
# Keys that the engines read in config.json under the same name.
SHARED_KEYS = (
    "num_hidden_layers",
    "hidden_size",
    "vocab_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "attention_bias",
    "rms_norm_eps",
    "rope_parameters",
    "max_position_embeddings",
)


class LayerConfig(Strict):
    """The keys of a decoder layer of an autoregressive part.

    Attributes:
        layer: Layer type: "llama", "qwen2" or "qwen3".
        hidden_size: d of the target.
        vocab_size: V of the target.
        intermediate_size: Width of the MLP.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads; divides ``num_attention_heads``.
        head_dim: Width of a head, even for the rotary embedding.
        attention_bias: Whether the query, key and value projections have a bias.
        rms_norm_eps: Epsilon of the norms.
        rope_parameters: Rotary embedding, with the keys of transformers, see `mtpc.autoregressive.rope`.
        max_position_embeddings: Longest context.
    """

    layer: LayerType
    hidden_size: HiddenSize
    vocab_size: VocabSize
    intermediate_size: Annotated[int, Field(ge=1, le=1 << 20)]
    num_attention_heads: Heads
    num_key_value_heads: Heads
    head_dim: Annotated[int, Field(ge=2, le=1 << 12, multiple_of=2)]
    attention_bias: bool
    rms_norm_eps: Annotated[float, Field(gt=0, le=1)]
    rope_parameters: dict[str, Any]
    max_position_embeddings: Annotated[int, Field(ge=1, le=MAX_POSITIONS)]

    @field_validator("rope_parameters")
    @classmethod
    def _rope(cls, values: dict[str, Any]) -> dict[str, Any]:
        return check_rope(values)

    @model_validator(mode="after")
    def _one_layer(self) -> Self:
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        if heads % keys:
            raise ValueError(f"num_attention_heads ({heads}) must be a multiple of num_key_value_heads ({keys})")
        biased = FIXED_ATTENTION_BIAS.get(self.layer, self.attention_bias)
        if self.attention_bias != biased:
            raise ValueError(f"attention_bias must be {str(biased).lower()} for a layer of type {self.layer!r}")
        stretched = self.rope_parameters.get("original_max_position_embeddings", self.max_position_embeddings)
        if stretched * self.rope_parameters.get("factor", 1) > MAX_POSITIONS:
            raise ValueError(
                f"rope_parameters.factor scales {stretched} positions to more than {MAX_POSITIONS}, the most allowed"
            )
        for name in ("short_factor", "long_factor"):
            if len(self.rope_parameters.get(name) or [0] * (self.head_dim // 2)) != self.head_dim // 2:
                raise ValueError(f"rope_parameters.{name} must have {self.head_dim // 2} numbers, half of head_dim")
        return self

    def check_ranks(self, ranks: int, drafter: Path | str) -> None:
        """Check that tensor-parallel ranks can split the layer evenly.

        Args:
            ranks: Tensor-parallel size.
            drafter: The drafter checkpoint, for the error.

        Raises:
            MTPCError: Where heads or MLP cannot be split.
        """
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        if heads % ranks or (keys % ranks and ranks % keys) or self.intermediate_size % ranks:
            raise MTPCError(
                f"{drafter} has {heads} attention heads, {keys} key-value heads and an intermediate_size of "
                f"{self.intermediate_size}, which {ranks} tensor-parallel ranks cannot split evenly."
            )


class LayersConfig(TargetInterface, LayerConfig):
    """The keys of any autoregressive part: its decoder layers, and what it uses of its target.

    Attributes:
        num_hidden_layers: Decoder layers.
    """

    num_hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 1


class AutoregressiveConfig(LayersConfig):
    """The keys of layers with weights of their own, in a drafter's section of config.json. The defaults are FastMTP's.

    Attributes:
        normed: Whether the norms around the layers exist (FastMTP). Without them, as in EAGLE and Gumiho, there is no
            norm in front of the projection, of the first layer or at the end, and the projection has a bias.
    """

    normed: bool = True


def layer_of(target: Any) -> dict[str, Any]:
    """Return the keys of a `LayerConfig` whose layer has the shape of a target's layers.

    For a mixture of experts the layer is dense: ``intermediate_size`` is its width, whatever the experts' widths are.

    Args:
        target: The target's configuration in transformers.

    Returns:
        The keys and their values.

    Raises:
        MTPCError: For an unsupported model type, activation, MLP bias or sliding window.
    """
    kind = LAYER_TYPES.get(target.model_type)
    if kind is None:
        raise MTPCError(
            f"Cannot use layers of model_type {target.model_type!r}: supported are {', '.join(LAYER_TYPES)}."
        )
    for name, expected in (("hidden_act", "silu"), ("mlp_bias", False), ("use_sliding_window", False)):
        if getattr(target, name, expected) != expected:
            raise MTPCError(f"the target's {name} is {getattr(target, name)!r}, but only {expected!r} is supported.")
    return {
        "layer": kind,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "intermediate_size": target.intermediate_size,
        "num_attention_heads": target.num_attention_heads,
        "num_key_value_heads": target.num_key_value_heads,
        "head_dim": getattr(target, "head_dim", None) or target.hidden_size // target.num_attention_heads,
        "attention_bias": kind == "qwen2" or target.attention_bias,
        "rms_norm_eps": float(target.rms_norm_eps),
        "rope_parameters": {key: value for key, value in target.rope_parameters.items() if key != "type"},
        "max_position_embeddings": target.max_position_embeddings,
    }
