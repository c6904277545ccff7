"""config.json of a FastMTP drafter: one decoder layer of the target's own kind, and what it was trained for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtpc.drafter.checked_json import check_types, describes, own_section, read_section
from mtpc.errors import MTPCError

ARCHITECTURE = "EagleFastMTPForCausalLM"
LAYERS = ("llama", "qwen2")
# Keys beside "fastmtp" that the engines' model configuration reads and that are the same for every drafter.
ENGINE_KEYS: dict[str, Any] = {
    "architectures": [ARCHITECTURE],
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
# Keys that the engines read under the same name.
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


@dataclass(frozen=True)
class FastMTPConfig:
    """The drafter's own section ("fastmtp") of config.json: the target's layer, and the number of steps."""

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
    num_drafts: int  # K, the steps that it was trained for; more can be drafted

    def __post_init__(self) -> None:
        check_types(self)
        if self.layer not in LAYERS:
            raise MTPCError(f"layer must be one of {', '.join(LAYERS)}, not {self.layer!r}.")
        for name in (*SIZES, "max_position_embeddings", "num_drafts"):
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


def config_for(target: Any, num_drafts: int) -> FastMTPConfig:
    """The configuration of a drafter whose layer is like those of a target.

    target: its configuration in transformers.

    Errors: `MTPCError` for a target of a kind that no layer here computes.
    """
    kind = "qwen2" if target.model_type in ("qwen2", "mimo") else target.model_type
    if kind not in LAYERS:
        raise MTPCError(
            f"the target is of type {target.model_type!r}, but a FastMTP layer is {', '.join(LAYERS)} or mimo."
        )
    for name, expected in (("hidden_act", "silu"), ("mlp_bias", False), ("use_sliding_window", False)):
        if getattr(target, name, expected) != expected:
            raise MTPCError(f"the target's {name} is {getattr(target, name)!r}, but only {expected!r} is supported.")
    return FastMTPConfig(
        layer=kind,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        intermediate_size=target.intermediate_size,
        num_attention_heads=target.num_attention_heads,
        num_key_value_heads=target.num_key_value_heads,
        head_dim=getattr(target, "head_dim", None) or target.hidden_size // target.num_attention_heads,
        attention_bias=kind == "qwen2" or target.attention_bias,
        rms_norm_eps=float(target.rms_norm_eps),
        rope_parameters=dict(target.rope_parameters),
        max_position_embeddings=target.max_position_embeddings,
        num_drafts=num_drafts,
    )


def config_to_json(config: FastMTPConfig) -> dict[str, Any]:
    """The whole of config.json."""
    shared = {key: getattr(config, key) for key in SHARED_KEYS}
    return {**ENGINE_KEYS, "model_type": config.layer, **shared, "fastmtp": own_section(config)}


def read_config(folder: Path) -> FastMTPConfig:
    """Read and check ``config.json``.

    Errors: `MTPCError` with one sentence that names the file, the key, what was found and what was expected.
    """
    return read_section(folder, "fastmtp", FastMTPConfig, config_to_json, "a FastMTP drafter")


def describes_a_drafter(folder: Path) -> bool | None:
    """Whether the ``config.json`` of a directory says that it is a FastMTP drafter; None if there is none to read."""
    return describes(folder, "fastmtp", ARCHITECTURE)
