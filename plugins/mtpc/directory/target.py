"""What a drafter must fit of the target that is served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mtpc.errors import MTPCError


@dataclass(frozen=True)
class Target:
    """The sizes of a target."""

    hidden_size: int
    vocab_size: int


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
