"""Files that are written whole or not at all, whoever reads or writes them at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file to write, which then takes the place of ``path`` in one step.

    No other process writes it: several may replace the same file at once.  Where writing fails, ``path`` stays as it
    was and nothing is left beside it.
    """
    unfinished = path.with_name(f"{path.name}.{token_hex(4)}.new")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
