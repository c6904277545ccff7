"""A published config.yaml of Hydra: plain values with references to each other, read without executing anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from mtpc.errors import MTPCError, first_line
from mtpc.files.json_file import check_file

REFERENCE = re.compile(r"\$\{([\w.-]+)\}")
MAX_BYTES = 1 << 20  # of a file
MAX_DEPTH = 32  # references that lead to a value, and sections around it


class HydraConfig:
    """The values of a file.

    References such as ``${lm.n_embd}`` are resolved when a section is read. ``_target_`` is a value like any other.

    Args:
        path: The file.

    Raises:
        MTPCError: The file is missing, larger than 1 MiB, or does not hold sections of plain values.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        if path.stat().st_size > MAX_BYTES:
            raise MTPCError(f"{path} is larger than {MAX_BYTES >> 20} MiB, the limit for a configuration.")
        try:
            self._values = yaml.safe_load(path.read_bytes())
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise MTPCError(f"{path} cannot be read as YAML: {first_line(error)}.") from None
        if not isinstance(self._values, dict):
            raise MTPCError(f"{path} holds a {type(self._values).__name__}, but sections were expected.")

    def get(self, name: str) -> Any:
        """Return the value at a dotted name, with its references resolved.

        Args:
            name: The section's names, joined by dots.

        Returns:
            A plain value, a list or a dictionary; None where the name is null or not there.

        Raises:
            MTPCError: A reference leads nowhere or in a circle.
        """
        found = self._find(name, 0)
        return None if found is _MISSING else found

    def _find(self, name: str, depth: int) -> Any:
        value: Any = self._values
        for key in name.split("."):
            if isinstance(value, str):  # a section may be a reference itself
                value = self._resolved(value, depth + 1)
            if not isinstance(value, dict) or key not in value:
                return _MISSING
            value = value[key]
        return self._resolved(value, depth + 1)

    def _resolved(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise MTPCError(f"{self.path} has references in a circle, or is nested too deeply.")
        if isinstance(value, dict):
            return {key: self._resolved(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list):
            return [self._resolved(each, depth + 1) for each in value]
        reference = REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None:
            return value
        found = self._find(reference[1], depth)
        if found is _MISSING:
            raise MTPCError(f"{self.path} refers to {reference[1]!r}, which it does not have.")
        return found


_MISSING = object()
