"""Acceptance lengths as a table."""

from __future__ import annotations

from mtpc.lab.evaluation.evaluate import Results
from mtpc.lab.table import Table

MISSING = "-"


def acceptance_table(results: Results) -> Table:
    """A row for each kind of text and temperature, a column for each drafter: tokens per step."""
    columns = list(dict.fromkeys(column for rates in results.values() for column in rates))
    rows = []
    for column in columns:
        rates = (of_drafter.get(column) for of_drafter in results.values())
        rows.append([column, *(MISSING if one is None else f"{one['acceptance_length']:.3f}" for one in rates)])
    title = "Expected acceptance length on held-out text (tokens per step)"
    return Table(title, ["text, temperature", *results], rows)
