"""Acceptance lengths as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def acceptance_table(results: dict[str, dict[str, Any]]) -> Table:
    """Acceptance lengths: a row for each kind of text and temperature, a column for each drafter."""
    table = Table(title="expected acceptance length on held-out text (tokens per step)")
    table.add_column("text, temperature")
    for name in results:
        table.add_column(name, justify="right", overflow="fold")
    for column in dict.fromkeys(column for rates in results.values() for column in rates):
        found = (rates.get(column) for rates in results.values())
        table.add_row(column, *("-" if one is None else f"{one['acceptance_length']:.3f}" for one in found))
    return table
