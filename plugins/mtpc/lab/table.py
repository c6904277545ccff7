"""A table of text, for the terminal and as Markdown."""

from __future__ import annotations

from typing import NamedTuple

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table as RichTable


class Table(NamedTuple):
    """A table of text cells.

    Attributes:
        title: Title above the table.
        columns: Column headings.
        rows: Cells by row; the first cells name what the row is about.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]

    def to_rich(self) -> RichTable:
        """Return the table for the terminal."""
        table = RichTable(title=self.title, box=SIMPLE, title_justify="left", padding=0)
        for column in self.columns:
            table.add_column(escape(column), justify="right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def to_markdown(self) -> str:
        """Return the table as Markdown, with the title in bold above it."""
        lines = [self.columns, ["---:"] * len(self.columns), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n"
