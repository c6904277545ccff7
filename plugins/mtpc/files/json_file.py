"""JSON in a file: what every config.json, index, vocabulary and provenance.json must be, whoever wrote it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from mtpc.errors import MTPCError

LARGEST = 1 << 26  # bytes of a file


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Errors: `MTPCError` as `read_any`, or for a file that holds something else.
    """
    values = read_any(path)
    if not isinstance(values, dict):
        raise MTPCError(f"{path} holds a {type(values).__name__}, but a JSON object was expected.")
    return values


def read_any(path: Path) -> Any:
    """Whatever a file of JSON holds; nested too deeply to be read is no JSON either.

    Errors: `MTPCError` for a file that is missing, none, too large or not JSON.
    """
    check_file(path)
    try:
        if path.stat().st_size > LARGEST:
            raise MTPCError(f"{path} is larger than {LARGEST >> 20} MiB, which no JSON file here is.")
        return from_json(path.read_bytes())
    except OSError as error:
        raise MTPCError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise error if isinstance(error, MTPCError) else MTPCError(f"{path} cannot be read as JSON: {error}.") from None


def check_file(path: Path) -> None:
    """Errors: `MTPCError` where there is nothing of this name, or what is no file: reading a pipe would never end."""
    try:
        if path.is_file():
            return
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise MTPCError(f"{path} cannot be read: {error.strerror}.") from None
    raise MTPCError(f"{path} is no file, or a link to none." if is_there(path) else f"{path} is missing.")


def is_there(path: Path) -> bool:
    """Whether a directory has an entry of this name, also one that is no file, or a link that leads nowhere."""
    return os.path.lexists(path)


def is_folder(path: Path | str) -> bool:
    """Whether it is a directory that can be looked at; no name is too long to be asked."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False
