"""Checks before the work starts that its output can be written; nothing is left behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtpc.errors import MTPCError
from mtpc.lab.torchrun import is_first


def try_folder(folder: Path) -> None:
    """Check that files can be written into a folder, which need not exist yet; of torchrun's processes the first does.

    Args:
        folder: The folder; missing parents are created and removed again.

    Raises:
        MTPCError: The folder cannot be created or written into.
    """
    if not is_first():
        return
    with _refusing(folder), _made(folder), tempfile.TemporaryFile(dir=folder):
        pass


def check_new_folder(folder: Path) -> None:
    """Check that a folder does not exist or is empty.

    Args:
        folder: The folder.

    Raises:
        MTPCError: There is a file of this name, or the folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MTPCError(f"{folder} already exists; name a folder that is new or empty.")


def try_file(file: Path) -> None:
    """Check that a file can be written; an existing file is not changed. Of torchrun's processes the first does.

    Args:
        file: The file; missing folders are created and removed again.

    Raises:
        MTPCError: The file cannot be written, or its folder cannot be created.
    """
    if not is_first():
        return
    with _refusing(file):
        path = Path(os.path.realpath(file))  # resolves links, also broken ones
        if path.is_file() or path.is_dir() or path.is_char_device():
            with path.open("ab"):
                return
        with _made(path.parent), path.open("xb"):
            path.unlink()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MTPCError(f"{path} cannot be written: {error.strerror}; choose another path.") from None


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Create a folder for a while; what did not exist before is removed afterwards."""
    made: list[Path] = []
    try:
        for each in (*reversed(folder.parents), folder):
            if not each.exists():
                each.mkdir()
                made.append(each)
        yield
    finally:
        for each in reversed(made):
            each.rmdir()
