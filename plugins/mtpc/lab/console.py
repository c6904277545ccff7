"""The terminal, as every command prints to it."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def console() -> Console:
    """A terminal that shows names, paths and texts as they are: what is in brackets or colons is no markup."""
    return Console(markup=False, emoji=False)


def progress_on(terminal: Console) -> Progress:
    """Bars of what takes long: what it is, how much of it is done, since when and for how much longer."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=terminal)
