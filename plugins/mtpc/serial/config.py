"""What a serial part is: one decoder layer of the target's own kind behind a projection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtpc.directory.checked_json import check_types
from mtpc.errors import MTPCError

LAYERS = ("llama", "qwen2")
# Keys that the engines read in config.json under the same name.
SHARED_KEYS = (
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
SIZES = SHARED_KEYS[:6]


@dataclass(frozen=True, kw_only=True)
class SerialConfig:
    """The keys of a serial part in a drafter's section of config.json."""

    layer: str  # the kind of the decoder layer: "llama", or "qwen2" (MiMo's)
    hidden_size: int  # d of the target
    vocab_size: int  # V of the target
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    attention_bias: bool  # of the query, key and value projections
    rms_norm_eps: float
    rope_parameters: dict  # as in the configuration of transformers: rope_theta, rope_type and what the type needs
    max_position_embeddings: int

    def __post_init__(self) -> None:
        check_types(self)
        if self.layer not in LAYERS:
            raise MTPCError(f"layer must be one of {', '.join(LAYERS)}, not {self.layer!r}.")
        for name in (*SIZES, "max_position_embeddings"):
            if getattr(self, name) < 1:
                raise MTPCError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.num_attention_heads % self.num_key_value_heads:
            raise MTPCError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})."
            )
        if self.head_dim % 2:
            raise MTPCError(f"head_dim must be even, for the rotary embedding, not {self.head_dim}.")
        if not self.rms_norm_eps > 0:
            raise MTPCError(f"rms_norm_eps must be positive, not {self.rms_norm_eps}.")
        if self.layer == "qwen2" and not self.attention_bias:
            raise MTPCError("attention_bias must be true for a layer of kind 'qwen2'.")
        theta = self.rope_parameters.get("rope_theta")
        if not isinstance(theta, int | float) or not theta > 0:
            raise MTPCError(f"rope_parameters.rope_theta must be a positive number, but is {theta!r}.")
        if not isinstance(self.rope_parameters.get("rope_type"), str):
            raise MTPCError("rope_parameters.rope_type must be a string.")

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


def layer_of(target: Any) -> dict[str, Any]:
    """The keys of a `SerialConfig` whose layer is like those of a target.

    target: its configuration in transformers.

    Errors: `MTPCError` for a target of a kind that no layer here computes.
    """
    kind = "qwen2" if target.model_type in ("qwen2", "mimo") else target.model_type
    if kind not in LAYERS:
        raise MTPCError(
            f"the target is of type {target.model_type!r}, but a serial layer is {', '.join(LAYERS)} or mimo."
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
        "rope_parameters": dict(target.rope_parameters),
        "max_position_embeddings": target.max_position_embeddings,
    }
