"""The terminal, as every command prints to it."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """A terminal that shows names, paths and texts as they are: what is in brackets or colons is no markup."""
    return Console(markup=False, emoji=False)
