"""Files that are written completely or not at all, even if several processes read or write them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write, which then replaces ``path`` atomically.

    Several processes may replace the same file at once.  If writing fails, ``path`` is unchanged and the temporary file
    is removed.

    Args:
        path: The file to replace.

    Yields:
        Path of the temporary file, in the same folder.
    """
    unfinished = path.with_name(f"{path.name}.{token_hex(4)}.new")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
