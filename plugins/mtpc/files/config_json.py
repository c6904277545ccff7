"""``config.json`` of a drafter checkpoint, read strictly: the drafter's own section determines all other keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr, validated
from mtpc.files.json_file import is_folder, read_json

FORMAT_VERSION = 1

Section = TypeVar("Section", bound=BaseModel)


def read_config_file(folder: Path | str) -> dict[str, Any]:
    """Return the contents of ``config.json`` in a directory.

    Args:
        folder: The directory.

    Returns:
        The JSON object.

    Raises:
        MTPCError: The directory does not exist, or its ``config.json`` cannot be read.
    """
    if not is_folder(folder):
        raise MTPCError(f"{folder} is not a directory; a drafter checkpoint holds config.json and model.safetensors.")
    return read_json(Path(folder) / "config.json")


def read_section(
    folder: Path, name: str, kind: type[Section], whole: Callable[[Section], dict[str, Any]], title: str
) -> Section:
    """Read the section of a draft method in ``config.json`` and check all other keys against it.

    The other keys are compared by value: they are determined by the section, not by types and ranges.

    Args:
        folder: The drafter checkpoint.
        name: Key of the section.
        kind: Model that declares the section.
        whole: Returns the complete file for a section, as it is written.
        title: Name of the draft method with its article, for an error.

    Returns:
        The section.

    Raises:
        MTPCError: A key is missing, unknown or wrong; the message states the file, the key, its value and the rule.
    """
    path, values = Path(folder) / "config.json", read_config_file(folder)
    if not isinstance(values.get(name), dict):
        raise MTPCError(f"{path} has no section {name!r}, so it does not describe {title}.")
    section = dict(values[name])
    version = section.pop("version", None)
    if not _same(version, FORMAT_VERSION):
        raise MTPCError(
            f"{path}: {name}.version is {short_repr(version)}, but this release reads version {FORMAT_VERSION}."
        )
    config = validated(kind, section, f"the section {name!r} of {path}")
    expected = whole(config)
    for key, value in values.items():
        if key not in expected:
            raise MTPCError(f"{path}: unknown key {short_repr(key)}; expected {', '.join(expected)}.")
        if key != name and not _same(value, expected[key]):
            raise MTPCError(f"{path}: {key} is {short_repr(value)}, but {short_repr(expected[key])} was expected.")
    for key in expected:
        if key not in values:
            raise MTPCError(f"{path}: the key {key!r} is missing.")
    return config


def _same(found: Any, expected: Any) -> bool:
    """Whether two JSON values are equal and of the same type; an integer may stand for a float."""
    if isinstance(expected, dict):
        same_keys = isinstance(found, dict) and found.keys() == expected.keys()
        return same_keys and all(_same(found[key], value) for key, value in expected.items())
    kinds = (int, float) if isinstance(expected, float) else (type(expected),)
    return type(found) in kinds and bool(found == expected)
