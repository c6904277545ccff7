"""What an autoregressive part is: decoder layers of the target's own kind behind a projection."""

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
FIXED_ATTENTION_BIAS = {"qwen2": True, "qwen3": False}  # the attention_bias of kinds of layers that have just one
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
    """What a decoder layer of an autoregressive part is."""

    layer: LayerType  # its kind
    hidden_size: HiddenSize  # d of the target
    vocab_size: VocabSize  # V of the target
    intermediate_size: Annotated[int, Field(ge=1, le=1 << 20)]
    num_attention_heads: Heads
    num_key_value_heads: Heads
    head_dim: Annotated[int, Field(ge=2, le=1 << 12, multiple_of=2)]  # even, for the rotary embedding
    attention_bias: bool  # of the query, key and value projections
    rms_norm_eps: Annotated[float, Field(gt=0, le=1)]
    rope_parameters: dict[str, Any]  # as in the configuration of transformers, see `mtpc.autoregressive.rope`
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
            raise ValueError(f"attention_bias must be {str(biased).lower()} for a layer of kind {self.layer!r}")
        stretched = self.rope_parameters.get("original_max_position_embeddings", self.max_position_embeddings)
        if stretched * self.rope_parameters.get("factor", 1) > MAX_POSITIONS:
            raise ValueError(f"rope_parameters.factor makes more positions than {MAX_POSITIONS} of {stretched}")
        for name in ("short_factor", "long_factor"):
            if len(self.rope_parameters.get(name) or [0] * (self.head_dim // 2)) != self.head_dim // 2:
                raise ValueError(f"rope_parameters.{name} must hold {self.head_dim // 2} numbers, half of head_dim")
        return self

    def check_ranks(self, ranks: int, drafter: Path | str) -> None:
        """Whether tensor-parallel ranks can share the layer out evenly.

        Errors: `MTPCError`, which names the drafter.
        """
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        if heads % ranks or (keys % ranks and ranks % keys) or self.intermediate_size % ranks:
            raise MTPCError(
                f"{drafter} has {heads} attention heads, {keys} key-value heads and an intermediate_size of "
                f"{self.intermediate_size}, which {ranks} tensor-parallel ranks cannot share evenly."
            )


class AutoregressiveConfig(TargetInterface, LayerConfig):
    """The keys of an autoregressive part in a drafter's section of config.json; by default it is FastMTP's, of one layer."""

    num_hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 1
    normed: bool = True  # False, as EAGLE and Gumiho are: no norm in front of the projection and of the first layer,
    # none at the end, and a projection with a bias


def layer_of(target: Any) -> dict[str, Any]:
    """Return the keys of a `LayerConfig` whose layer is like those of a target.

    Of a mixture of experts the layer is like a dense one: ``intermediate_size`` is its width, whatever the experts' is.

    Args:
        target: Its configuration in transformers.

    Raises:
        MTPCError: For a target of a model type that no layer here is like.
    """
    kind = LAYER_TYPES.get(target.model_type)
    if kind is None:
        raise MTPCError(
            f"Cannot train this drafter for model_type {target.model_type!r}: supported are {', '.join(LAYER_TYPES)}."
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
