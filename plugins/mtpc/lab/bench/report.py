"""The benchmark's tables, for the terminal and as Markdown."""

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

NOISE = 1.05  # ratio of throughputs that two measurements of the same server may have


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f}%"


def speed_table(points: Sequence[Point]) -> Table:
    """Return throughput, speedup and acceptance length: a row for each point, a column for each drafter."""
    drafters = by_drafter(points)
    rows = []
    for point, *drafted in zip(points, *drafters.values(), strict=True):
        cells = [speed_cell(one.rate_with, one.speedup, one.tokens_per_step) for one in drafted]
        rows.append([f"{point.temperature:g}", str(point.batch_size), f"{point.rate_without:.1f}", *cells])
    return Table("Tokens/s (speedup, acceptance length)", ["T", "batch", NO_DRAFTER, *drafters], rows)


def speed_cell(rate: float, speedup: float, tokens_per_step: float) -> str:
    """Format a cell of `speed_table`.

    Args:
        rate: Tokens/s with a drafter.
        speedup: Ratio to the tokens/s without.
        tokens_per_step: Mean tokens per target forward pass.

    Returns:
        The cell, as in ``266.7 (2.67x, 1.43)``.
    """
    return f"{rate:.1f} ({speedup:.2f}x, {tokens_per_step:.2f})"


def rounds_table(points: Sequence[Point]) -> Table:
    """Return the speedup of each round, share of drafting and equal completions: a row for each point and drafter."""
    columns = ["T", "batch", "with", "speedup of each round", "drafting", "same output"]
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
    title = "Each round; drafting as a share of the time; share of outputs that equal those without a drafter"
    return Table(title, columns, rows)


def parts_table(points: Sequence[Point]) -> Table | None:
    """Return the parts of drafting as shares of the time: a row for each point and drafter; None if none is timed."""
    timed = [
        (point, name, drafted.part_shares)
        for point in points
        for name, drafted in {DRAFTER: point, **point.others}.items()
        if drafted.part_shares
    ]
    parts = list(dict.fromkeys(part for _, _, shares in timed for part in shares))
    rows = [
        [f"{point.temperature:g}", str(point.batch_size), name, *(_percent(shares.get(part)) for part in parts)]
        for point, name, shares in timed
    ]
    return Table("Parts of drafting as shares of the time", ["T", "batch", "with", *parts], rows) if rows else None


def acceptance_table(points: Sequence[Point]) -> Table:
    """Return marginal and conditional acceptance rates by position, over all batch sizes together."""
    columns, rates = ["draft"], []
    for temperature, drafts in drafts_by_temperature(points).items():
        columns += [f"marginal, T = {temperature:g}", f"conditional, T = {temperature:g}"]
        rates += [drafts.marginal_rates, drafts.conditional_rates]
    rows = [[str(number), *map(_percent, row)] for number, row in enumerate(zip(*rates, strict=True), 1)]
    return Table("Acceptance rate by position in the draft", columns, rows)


def tables(points: Sequence[Point]) -> list[Table]:
    """Return all tables of a benchmark."""
    found = [speed_table(points), rounds_table(points), parts_table(points), acceptance_table(points)]
    return [table for table in found if table is not None]


def draftless_notes(points: Sequence[Point]) -> list[str]:
    """Return a note on the points at which the drafter drafted nothing; none where it always drafted."""
    found = [f"T = {point.temperature:g}, batch {point.batch_size}" for point in points if not point.drafts.drafts]
    if not found:
        return []
    sentence = f"At {'; '.join(found)} the drafter drafted nothing, as no draft was worth its time."
    return [f"{sentence} `mtpc doctor` names a dtype that is slow on this machine."]


def outlier_notes(points: Sequence[Point]) -> list[str]:
    """Return a note on the speedups above the acceptance length; none where there are none.

    A decoding step with draft tokens takes at least as long as one without, so no drafter can reach such a speedup.
    """
    found = [
        f"T = {point.temperature:g}, batch {point.batch_size}, {name}"
        for name, drafted in by_drafter(points).items()
        for point in drafted
        if point.speedup > NOISE * point.tokens_per_step
    ]
    if not found:
        return []
    sentence = f"At {'; '.join(found)}: the speedup is above the acceptance length, which no drafter can reach"
    return [f"{sentence}: measure again with more --rounds."]


def show(points: Sequence[Point], console: Console, notes: Sequence[str] = ()) -> None:
    """Print the tables, with the notes below the first one."""
    first, *others = tables(points)
    console.print(first.to_rich())
    for note in notes:
        console.print(note, highlight=False)
    for table in others:
        console.print(table.to_rich())


def write(folder: Path, points: Sequence[Point], settings: dict[str, Any], notes: Sequence[str] = ()) -> None:
    """Write ``results.json``, with provenance and settings, and ``results.md``, with notes below its first table."""
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
