"""Reads JSON files, whoever wrote them: ``config.json``, indexes, vocabularies, ``provenance.json``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from mtpc.errors import MTPCError

MAX_BYTES = 1 << 26  # of a JSON file


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Args:
        path: The file.

    Returns:
        The object.

    Raises:
        MTPCError: The file cannot be read (see `read_any`) or does not contain an object.
    """
    values = read_any(path)
    if not isinstance(values, dict):
        raise MTPCError(f"{path} holds a {type(values).__name__}, but a JSON object was expected.")
    return values


def read_any(path: Path) -> Any:
    """Read any JSON value from a file.

    Args:
        path: The file.

    Returns:
        The value.

    Raises:
        MTPCError: The file is missing, not a regular file, too large, not JSON, or nested too deeply.
    """
    check_file(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise MTPCError(f"{path} is larger than {MAX_BYTES >> 20} MiB, the limit for JSON files.")
        return from_json(path.read_bytes())
    except OSError as error:
        raise MTPCError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise error if isinstance(error, MTPCError) else MTPCError(f"{path} cannot be read as JSON: {error}.") from None


def check_file(path: Path) -> None:
    """Check that a path is a regular file, as reading a pipe would never end.

    Args:
        path: The path.

    Raises:
        MTPCError: The path does not exist, is not a file, or cannot be accessed.
    """
    try:
        if path.is_file():
            return
    except OSError as error:  # the name is too long or a folder is not accessible
        raise MTPCError(f"{path} cannot be read: {error.strerror}.") from None
    raise MTPCError(f"{path} is not a file, or is a broken link." if is_there(path) else f"{path} is missing.")


def is_there(path: Path) -> bool:
    """Return whether a path exists, even as a broken link or something other than a file.

    Args:
        path: The path.
    """
    return os.path.lexists(path)


def is_folder(path: Path | str) -> bool:
    """Return whether a path is an accessible directory; a name of any length is allowed.

    Args:
        path: The path.
    """
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False
