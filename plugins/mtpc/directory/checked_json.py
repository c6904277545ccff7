"""config.json of a drafter directory, read strictly: the drafter's own section decides what every other key must be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, get_type_hints

from mtpc.errors import MTPCError
from mtpc.json_file import read_json

FORMAT_VERSION = 1


class Config(Protocol):
    """A dataclass whose fields are the keys of a section."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Section = TypeVar("Section", bound=Config)


def check_types(config: Config) -> None:
    """Errors: `MTPCError` for a field whose value is not of the type that it is declared with."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if type(value) is not kind:
            raise MTPCError(f"{name} must be of type {kind.__name__}, but is {value!r}.")


def from_dict(kind: type[Section], values: dict[str, Any]) -> Section:
    """Errors: `MTPCError` for an unknown or missing key, a wrong type or a value out of range."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise MTPCError(f"unknown key {unknown[0]!r}; the keys are {', '.join(known)}.")
    missing = [name for name, f in known.items() if f.default is dataclasses.MISSING and name not in values]
    if missing:
        raise MTPCError(f"the key {missing[0]!r} is missing.")
    return kind(**values)


def own_section(config: Config) -> dict[str, Any]:
    """A configuration as the section of config.json that it is read from."""
    return {"version": FORMAT_VERSION, **dataclasses.asdict(config)}


def read_section(
    folder: Path, name: str, kind: type[Section], whole: Callable[[Section], dict[str, Any]], title: str
) -> Section:
    """The section ``name`` of ``config.json``; the other keys must be those of ``whole``, the file as it is written.

    Errors: `MTPCError` with one sentence that names the file, the key, what was found and what was expected.
    """
    path = Path(folder) / "config.json"
    if not Path(folder).is_dir():
        raise MTPCError(f"{folder} is not a directory; a drafter directory holds config.json and model.safetensors.")
    values = read_json(path)
    if not isinstance(values.get(name), dict):
        raise MTPCError(f"{path} has no section {name!r}, so it does not describe {title}.")
    own = dict(values[name])
    version = own.pop("version", None)
    if version != FORMAT_VERSION:
        raise MTPCError(f"{path}: {name}.version is {version!r}, but this release reads version {FORMAT_VERSION}.")
    try:
        config = from_dict(kind, own)
    except MTPCError as error:
        raise MTPCError(f"{path}: in section {name!r}, {error}") from None
    expected = whole(config)
    for key, value in values.items():
        if key not in expected:
            raise MTPCError(f"{path}: unknown key {key!r}; expected {', '.join(expected)}.")
        if key != name and value != expected[key]:
            raise MTPCError(f"{path}: {key} is {value!r}, but {expected[key]!r} was expected.")
    for key in expected:
        if key not in values:
            raise MTPCError(f"{path}: the key {key!r} is missing.")
    return config
