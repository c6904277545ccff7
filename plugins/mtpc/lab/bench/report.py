"""The benchmark's tables: for the terminal, and as Markdown for a README."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mtpc.files import provenance
from mtpc.lab.bench.results import DRAFTER, NO_DRAFTER, Point, by_drafter, drafts_by_temperature
from mtpc.lab.table import Table


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def speed_table(points: Sequence[Point]) -> Table:
    """One row for each point, one column for each drafter."""
    drafters = by_drafter(points)
    rows = []
    for point, *drafted in zip(points, *drafters.values(), strict=True):
        cells = [speed_cell(one.rate_with, one.speedup, one.tokens_per_step) for one in drafted]
        rows.append([f"{point.temperature:g}", str(point.batch_size), f"{point.rate_without:.1f}", *cells])
    return Table("Tokens/s (speed-up, tokens a step)", ["T", "batch", NO_DRAFTER, *drafters], rows)


def speed_cell(rate: float, speedup: float, tokens_per_step: float) -> str:
    """Tokens/s with a drafter, and what explains it."""
    return f"{rate:.1f} ({speedup:.2f} x, {tokens_per_step:.2f})"


def rounds_table(points: Sequence[Point]) -> Table:
    """One row for each point and drafter: how sure its figures are."""
    columns = ["T", "batch", "with", "speed-up of each round", "drafting", "same text"]
    drafters = by_drafter(points)
    rows = [
        [
            f"{point.temperature:g}",
            str(point.batch_size),
            name,
            " ".join(f"{speedup:.2f}" for speedup in point.speedups),
            _percent(point.drafting_share),
            _percent(point.identical),
        ]
        for drafted in zip(*drafters.values(), strict=True)
        for name, point in zip(drafters, drafted, strict=True)
    ]
    return Table("Each round; drafting as a share of a step; completions that are as without a drafter", columns, rows)


def parts_table(points: Sequence[Point]) -> Table | None:
    """One row for each point and drafter that tells the parts of drafting; None where none does."""
    told = [
        (point, name, drafted.part_shares)
        for point in points
        for name, drafted in {DRAFTER: point, **point.others}.items()
        if drafted.part_shares
    ]
    parts = list(dict.fromkeys(part for _, _, shares in told for part in shares))
    rows = [
        [f"{point.temperature:g}", str(point.batch_size), name, *(_percent(shares.get(part)) for part in parts)]
        for point, name, shares in told
    ]
    return Table("Parts of drafting as shares of a step", ["T", "batch", "with", *parts], rows) if rows else None


def acceptance_table(points: Sequence[Point]) -> Table:
    """One row for each position of the drafter's draft, all batch sizes together: marginal and conditional rates."""
    columns, rates = ["draft"], []
    for temperature, drafts in drafts_by_temperature(points).items():
        columns += [f"marginal, T = {temperature:g}", f"conditional, T = {temperature:g}"]
        rates += [drafts.marginal_rates, drafts.conditional_rates]
    rows = [[str(number), *map(_percent, row)] for number, row in enumerate(zip(*rates, strict=True), 1)]
    return Table("Acceptance rate by position in the draft", columns, rows)


def tables(points: Sequence[Point]) -> list[Table]:
    """All tables of a benchmark."""
    found = [speed_table(points), rounds_table(points), parts_table(points), acceptance_table(points)]
    return [table for table in found if table is not None]


def show(points: Sequence[Point], console: Console, notes: Sequence[str] = ()) -> None:
    """Print the tables; notes: sentences below the first."""
    first, *others = tables(points)
    console.print(first.to_rich())
    for note in notes:
        console.print(note, highlight=False)
    for table in others:
        console.print(table.to_rich())


def write(folder: Path, points: Sequence[Point], settings: dict[str, Any], notes: Sequence[str] = ()) -> None:
    """Write ``results.json`` (with provenance and settings) and ``results.md``, with notes below its first table."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = provenance.collect()
    results = {
        "provenance": facts,
        "settings": settings,
        "points": [point.to_json() for point in points],
    }
    (folder / "results.json").write_text(json.dumps(results, indent=2, allow_nan=False) + "\n")
    command = f"Made by `{facts['command']}`."
    first, *others = (table.to_markdown() for table in tables(points))
    (folder / "results.md").write_text("\n".join([first, *(f"{note}\n" for note in notes), *others, command]) + "\n")
