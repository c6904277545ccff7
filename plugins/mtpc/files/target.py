"""Sizes of the served target that a drafter must match."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

from mtpc.errors import MTPCError

# Upper bounds are above every model; `mtpc.memory` checks whether all sizes together fit in memory.
HiddenSize = Annotated[int, Field(ge=1, le=1 << 17)]
VocabSize = Annotated[int, Field(ge=1, le=1 << 22)]
Heads = Annotated[int, Field(ge=1, le=1 << 12)]


@dataclass(frozen=True)
class Target:
    """The sizes of a target.

    Attributes:
        hidden_size: Width d of its hidden states.
        vocab_size: Number of its tokens, V.
        layers: Number of its layers; None: unknown.
    """

    hidden_size: int
    vocab_size: int
    layers: int | None = field(default=None, compare=False)


class TargetKeys(BaseModel):
    """Size keys of a target's ``config.json``; each is optional, and other keys are ignored."""

    model_config = ConfigDict(strict=True)

    architectures: list[str] | None = None
    hidden_size: HiddenSize | None = None
    vocab_size: VocabSize | None = None
    num_hidden_layers: Annotated[int, Field(ge=1, le=1 << 12)] | None = None
    num_attention_heads: Heads | None = None
    num_key_value_heads: Heads | None = None


class TargetSizes(Protocol):
    """A configuration with the sizes of its target."""

    @property
    def hidden_size(self) -> int:
        """Width d of the target's hidden states."""

    @property
    def vocab_size(self) -> int:
        """Number of the target's tokens, V."""


def check_target(folder: Path, config: TargetSizes, target: Target) -> None:
    """Check that a drafter was trained for the target's hidden size and vocabulary size.

    Args:
        folder: The drafter checkpoint, for an error.
        config: Configuration of the drafter.
        target: Sizes of the target.

    Raises:
        MTPCError: A size differs.
    """
    for name in ("hidden_size", "vocab_size"):
        expected, size = getattr(config, name), getattr(target, name)
        if expected != size:
            raise MTPCError(f"{folder} was trained for a target with {name} {expected}, but the target has {size}.")
