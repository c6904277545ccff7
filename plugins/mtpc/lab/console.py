"""The terminal output of every command."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def console(*, quiet: bool = False) -> Console:
    """Return a terminal that prints text as it is, without markup in brackets or emoji in colons.

    Args:
        quiet: Whether nothing is printed.
    """
    return Console(markup=False, emoji=False, quiet=quiet)


def progress_on(terminal: Console) -> Progress:
    """Return progress bars with description, count, elapsed and remaining time.

    Args:
        terminal: Where the bars are shown, while the returned context is active.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=terminal)
