"""The tables of `mtpc vocab build`."""

from __future__ import annotations

from rich.console import Console

from mtpc.lab.cli.vocab import coverage_table


def test_a_row_for_each_text_and_draft_vocabulary_and_a_column_for_each_size() -> None:
    shares = {
        text: {(name, size): number / 1000 + size / 100 for name in ("english", "french") for size in (8, 16)}
        for number, text in enumerate(("code", "english"), 1)
    }
    console = Console(width=80, record=True)
    console.print(coverage_table(shares))
    lines = [line.strip("│┃ ") for line in console.export_text().splitlines()]
    rows = [[cell.strip() for cell in line.replace("┃", "│").split("│")] for line in lines if "%" in line]
    assert ["text", "draft vocabulary", "8", "16"] in [[c.strip() for c in line.split("┃")] for line in lines]
    assert rows == [
        ["code", "english", "8.1%", "16.1%"],
        ["code", "french", "8.1%", "16.1%"],
        ["english", "english", "8.2%", "16.2%"],
        ["english", "french", "8.2%", "16.2%"],
    ]
