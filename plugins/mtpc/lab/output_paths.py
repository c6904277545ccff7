"""Whether something can be written, tried before the work that it is the result of; nothing is left behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtpc.errors import MTPCError


def try_folder(folder: Path) -> None:
    """Errors: `MTPCError` for a folder that files cannot be written into, or that cannot be made."""
    with _refusing(folder), _made(folder), tempfile.TemporaryFile(dir=folder):
        pass


def try_file(file: Path) -> None:
    """Errors: `MTPCError` for a file that cannot be written, in a folder that is made if need be."""
    with _refusing(file):
        path = Path(os.path.realpath(file))  # where links lead, also those to nothing
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
        raise MTPCError(f"{path} cannot be written: {error.strerror}; name another place.") from None


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder that is there; what of it was not is taken away afterwards."""
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
