"""config.json of a drafter checkpoint, read strictly: the drafter's own section decides what every other key must be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared, shown
from mtpc.files.json_file import is_folder, read_json

FORMAT_VERSION = 1

Section = TypeVar("Section", bound=BaseModel)


def read_config_file(folder: Path | str) -> dict[str, Any]:
    """What ``config.json`` of a directory holds.

    Errors: `MTPCError` for what is no directory, or holds no such file that can be read.
    """
    if not is_folder(folder):
        raise MTPCError(f"{folder} is not a directory; a drafter checkpoint holds config.json and model.safetensors.")
    return read_json(Path(folder) / "config.json")


def read_section(
    folder: Path, name: str, kind: type[Section], whole: Callable[[Section], dict[str, Any]], title: str
) -> Section:
    """The section ``name`` of ``config.json``; the other keys must be those of ``whole``, the file as it is written.

    These are compared by hand: what they must be is no type and no range, but what the section says.

    Errors: `MTPCError` with one sentence that names the file, the key, what was found and what was expected.
    """
    path, values = Path(folder) / "config.json", read_config_file(folder)
    if not isinstance(values.get(name), dict):
        raise MTPCError(f"{path} has no section {name!r}, so it does not describe {title}.")
    own = dict(values[name])
    version = own.pop("version", None)
    if not _same(version, FORMAT_VERSION):
        raise MTPCError(f"{path}: {name}.version is {shown(version)}, but this release reads version {FORMAT_VERSION}.")
    config = declared(kind, own, f"the section {name!r} of {path}")
    expected = whole(config)
    for key, value in values.items():
        if key not in expected:
            raise MTPCError(f"{path}: unknown key {shown(key)}; expected {', '.join(expected)}.")
        if key != name and not _same(value, expected[key]):
            raise MTPCError(f"{path}: {key} is {shown(value)}, but {shown(expected[key])} was expected.")
    for key in expected:
        if key not in values:
            raise MTPCError(f"{path}: the key {key!r} is missing.")
    return config


def _same(found: Any, expected: Any) -> bool:
    """Whether values out of JSON are equal, of one type each; a whole number will do where any number would."""
    if isinstance(expected, dict):
        same_keys = isinstance(found, dict) and found.keys() == expected.keys()
        return same_keys and all(_same(found[key], value) for key, value in expected.items())
    kinds = (int, float) if isinstance(expected, float) else (type(expected),)
    return type(found) in kinds and bool(found == expected)
