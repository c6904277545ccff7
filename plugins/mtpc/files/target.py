"""What a drafter must fit of the target that is served."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

from mtpc.errors import MTPCError

# The upper ends are beyond any model; what fits in memory is told from all sizes together (`mtpc.memory`).
HiddenSize = Annotated[int, Field(ge=1, le=1 << 17)]
VocabSize = Annotated[int, Field(ge=1, le=1 << 22)]
Heads = Annotated[int, Field(ge=1, le=1 << 12)]


@dataclass(frozen=True)
class Target:
    """The sizes of a target."""

    hidden_size: int
    vocab_size: int
    layers: int | None = field(default=None, compare=False)  # None: unknown


class TargetKeys(BaseModel):
    """What is said of a target's size in its config.json, if it is said there, among many other keys."""

    model_config = ConfigDict(strict=True)

    architectures: list[str] | None = None
    hidden_size: HiddenSize | None = None
    vocab_size: VocabSize | None = None
    num_hidden_layers: Annotated[int, Field(ge=1, le=1 << 12)] | None = None
    num_attention_heads: Heads | None = None
    num_key_value_heads: Heads | None = None


class Fitted(Protocol):
    """A configuration that says what target it is for."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...


def check_target(folder: Path, config: Fitted, target: Target) -> None:
    """Errors: `MTPCError` when the drafter was made for another hidden size or vocabulary."""
    for name in ("hidden_size", "vocab_size"):
        own, size = getattr(config, name), getattr(target, name)
        if own != size:
            raise MTPCError(f"{folder} was trained for a target with {name} {own}, but the target has {size}.")
