"""The state of a training on disk: written whole or not at all, and taken up by the very same training only."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError

from mtpc.errors import MTPCError, first_line
from mtpc.files.replacing import replacing
from mtpc.lab.training.state_schema import StateModel


class StateFileContent(StateModel):
    """The whole file."""

    format: Literal["mtpc training 1"] = "mtpc training 1"
    identity: dict[str, Any]
    state: dict[str, Any]


class StateFile:
    """A state and the identity of the training that it belongs to: nested dictionaries of plain values."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path, self.identity = path, identity

    def write(self, state: dict[str, Any]) -> None:
        """Put a new state in the place of the one before, in one step."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as unfinished:
            torch.save(StateFileContent(identity=self.identity, state=state).model_dump(), unfinished)

    def read(self) -> dict[str, Any] | None:
        """The state; None where there is no file.

        Errors: `MTPCError` for a file that is damaged or no such state, or a state of another training.
        """
        if not self.path.exists():
            return None
        try:
            with warnings.catch_warnings(action="ignore"):  # of torch, about files that it then refuses
                loaded = torch.load(self.path, weights_only=True, map_location="cpu")
        except Exception as error:  # a damaged file can raise whatever its bytes lead to
            raise self.error(f"is damaged or not the state of a training: {first_line(error)}") from None
        try:
            whole = StateFileContent.model_validate(loaded)
        except ValidationError:
            raise self.error("is not the state of a training by this release") from None
        difference = first_difference(whole.identity, self.identity)
        if difference is not None:
            raise self.error(f"belongs to another training: {difference}")
        return whole.state

    def error(self, what: str) -> MTPCError:
        """The error for a file that cannot be taken up."""
        return MTPCError(f"{self.path} {what}; name another file, or take it away.")


def first_difference(saved: Any, wanted: Any, name: str = "") -> str | None:
    """Where two nested dictionaries differ first, in words; None: they are equal."""
    if isinstance(saved, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in saved if key not in wanted)]:
            path = f"{name}.{key}" if name else str(key)
            if key not in saved or key not in wanted:
                return f"{path} is only in {'this one' if key in wanted else 'that one'}"
            difference = first_difference(saved[key], wanted[key], path)
            if difference is not None:
                return difference
        return None
    return None if saved == wanted else f"its {name} is {saved!r}, but {wanted!r} was asked for"
