"""config.json of a drafter directory: what the drafter is, and what engines need to read of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtpc.circuits import build_circuit
from mtpc.drafter.checked_json import check_types, describes, own_section, read_section
from mtpc.errors import MTPCError

ARCHITECTURE = "EagleMTPCForCausalLM"
# Keys beside "mtpc" that the engines' model configuration reads; written by `save`, checked by `read`.
ENGINE_KEYS: dict[str, Any] = {
    "architectures": [ARCHITECTURE],
    "model_type": "llama",
    "num_hidden_layers": 0,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 1 << 20,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


@dataclass(frozen=True)
class DrafterConfig:
    """The drafter's own section ("mtpc") of config.json."""

    circuit: str  # "ff", "cp", "hmm" or "btree"
    window: int  # n, tokens of one window, the target's own next token included
    rank: int  # R, components per position
    hidden_size: int  # d of the target
    vocab_size: int  # V of the target
    leaves: str = "shared"  # "table" (paper) or "shared" (one unembedding for all leaves)
    leaf_features: int = 128  # m of shared leaves
    component_features: int = 32  # k of shared leaves
    sum_features: int = 32  # 0: sum weights straight from the hidden state (paper)
    trunk_size: int = 0  # width of the residual layer in front, 0: none (paper)
    token_input: bool = False  # the trunk reads the target's own token; the circuit then starts after it

    def __post_init__(self) -> None:
        check_types(self)
        if self.leaves not in ("table", "shared"):
            raise MTPCError(f"leaves must be 'table' or 'shared', not {self.leaves!r}.")
        for name in ("hidden_size", "vocab_size", "leaf_features", "component_features"):
            if getattr(self, name) < 1:
                raise MTPCError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("sum_features", "trunk_size"):
            if getattr(self, name) < 0:
                raise MTPCError(f"{name} must not be negative, but is {getattr(self, name)}.")
        if self.token_input and (self.trunk_size == 0 or self.window < 2):
            raise MTPCError(
                "token_input needs a trunk_size above 0, where the token enters, and a window of at least 2."
            )
        build_circuit(self.circuit, self.circuit_window, self.rank)

    @property
    def circuit_window(self) -> int:
        """Tokens that the circuit is a distribution over, the last ones of the window."""
        return self.window - 1 if self.token_input else self.window


def config_to_json(config: DrafterConfig) -> dict[str, Any]:
    """The whole of config.json."""
    engine = {"hidden_size": config.hidden_size, "vocab_size": config.vocab_size, "head_dim": config.hidden_size}
    return {**ENGINE_KEYS, **engine, "mtpc": own_section(config)}


def read_config(folder: Path) -> DrafterConfig:
    """Read and check ``config.json``.

    Errors: `MTPCError` with one sentence that names the file, the key, what was found and what was expected.
    """
    return read_section(folder, "mtpc", DrafterConfig, config_to_json, "an MTPC drafter")


def describes_a_drafter(folder: Path) -> bool | None:
    """Whether the ``config.json`` of a directory says that it is an MTPC drafter; None if there is none to read."""
    return describes(folder, "mtpc", ARCHITECTURE)
