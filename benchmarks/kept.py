"""What a benchmark has found, on disk as it comes: one that is started again goes on where it was."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.json_file import read_json


class Kept:
    """Files in a folder, each with what it was made of; it counts only as long as that is the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, made_of: Mapping[str, Any]) -> Any:
        """What was written under this name, made of the same; None: nothing was."""
        file = self._file(name)
        found = read_json(file) if file.exists() else {}
        return found.get("found") if found.get("made_of") == as_json(made_of) else None

    def write(self, name: str, made_of: Mapping[str, Any], found: Any) -> None:
        """Replace what was under this name, whole."""
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"made_of": as_json(made_of), "found": found}) + "\n")
        new.replace(file)

    def _file(self, name: str) -> Path:
        return self.folder / (re.sub(r"[^\w.=]+", "-", name) + ".json")


def as_json(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value, default=str))


def digest(folder: Path) -> str:
    """SHA-256 of the configuration and weights of a checkpoint.

    Errors: `MTPCError` where the folder holds none.
    """
    if not (folder / "config.json").is_file():
        raise MTPCError(f"{folder} must be the folder of a checkpoint, but it has no config.json.")
    found = hashlib.sha256()
    for file in sorted((folder / "config.json", *folder.glob("*.safetensors"))):
        found.update(file.read_bytes())
    return found.hexdigest()


def digest_of(value: Any) -> str:
    """SHA-256 of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
