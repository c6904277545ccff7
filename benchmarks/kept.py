"""Results of a benchmark on disk, so that a benchmark that is started again continues where it stopped."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.json_file import read_json
from mtpc.files.provenance import commit_of
from mtpc.lab.targets.folder import weights_digest


class Kept:
    """Result files in a folder. Each also holds the inputs of its result, and is valid for the same inputs only.

    The commit of this repository is one of the inputs, as results are reported with it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.commit = folder, commit_of(Path(__file__).resolve())

    def read(self, name: str, made_of: Mapping[str, Any]) -> Any:
        """Return the result of this name for the same inputs; None if there is none."""
        file = self._file(name)
        found = read_json(file) if file.exists() else {}
        return found.get("found") if found.get("made_of") == self._inputs(made_of) else None

    def write(self, name: str, made_of: Mapping[str, Any], found: Any) -> None:
        """Write a result and its inputs; an earlier result of this name is replaced as a whole."""
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"made_of": self._inputs(made_of), "found": found}) + "\n")
        new.replace(file)

    def _inputs(self, made_of: Mapping[str, Any]) -> Any:
        return as_json({**made_of, "commit": self.commit})

    def _file(self, name: str) -> Path:
        return self.folder / (re.sub(r"[^\w.=]+", "-", name) + ".json")


def as_json(value: Any) -> Any:
    """Return a value as it is after it was written to JSON and read again."""
    return json.loads(json.dumps(value, default=str))


def digest(folder: Path) -> str:
    """Return the SHA-256 of the configuration and weights of a checkpoint.

    Raises:
        MTPCError: The folder has no config.json.
    """
    if not (folder / "config.json").is_file():
        raise MTPCError(f"{folder} must be the folder of a checkpoint, but it has no config.json.")
    return weights_digest(folder)


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value that JSON can represent."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
