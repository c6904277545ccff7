"""Training state on disk: written atomically, and resumed by the same training only."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError

from mtpc.errors import MTPCError
from mtpc.files.replacing import replacing
from mtpc.lab.training.state_schema import StateModel


class StateFileContent(StateModel):
    """Content of the file.

    Attributes:
        format: Name and version of the format.
        identity: Target, settings and data of the training.
        state: State of the training, see `mtpc.lab.training.state_schema.TrainingState`.
    """

    format: Literal["mtpc training 1"] = "mtpc training 1"
    identity: dict[str, Any]
    state: dict[str, Any]


class StateFile:
    """File with the state of one training.

    Args:
        path: Path of the file.
        identity: Nested dictionaries of plain values that identify the training.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path, self.identity = path, identity

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file atomically with a new state, nested dictionaries of plain values and tensors."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as unfinished:
            torch.save(StateFileContent(identity=self.identity, state=state).model_dump(), unfinished)

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None if the file does not exist.

        Raises:
            MTPCError: The file is damaged, is not a training state, or belongs to another training.
        """
        if not self.path.exists():
            return None
        try:
            with warnings.catch_warnings(action="ignore"):  # torch warns about files that it then rejects
                loaded = torch.load(self.path, weights_only=True, map_location="cpu")
        except Exception:  # a damaged file can raise any exception
            raise self.error("is damaged or is not a training state") from None
        try:
            whole = StateFileContent.model_validate(loaded)
        except ValidationError:
            raise self.error("is not a training state of this release") from None
        difference = first_difference(whole.identity, self.identity)
        if difference is not None:
            raise self.error(f"belongs to another training: {difference}")
        return whole.state

    def error(self, reason: str) -> MTPCError:
        """Return the error for a file that cannot be resumed."""
        return MTPCError(f"{self.path} {reason}; name another file with --resume.")


def first_difference(saved: Any, wanted: Any, name: str = "") -> str | None:
    """Describe the first difference of two nested dictionaries; None if they are equal."""
    if isinstance(saved, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in saved if key not in wanted)]:
            path = f"{name}.{key}" if name else str(key)
            if key not in saved or key not in wanted:
                return f"only {'this training' if key in wanted else 'the saved one'} has {path}"
            difference = first_difference(saved[key], wanted[key], path)
            if difference is not None:
                return difference
        return None
    return None if saved == wanted else f"its {name} is {saved!r}, but this training has {wanted!r}"
