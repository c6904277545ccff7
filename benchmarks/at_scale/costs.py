"""Tables of docs/at-scale.md: step times, break-even acceptance lengths, and their sensitivity."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any

from benchmarks.at_scale.drafters import DRAFTERS, FASTMTP, LANGUAGES, Drafter, break_even
from benchmarks.at_scale.machines import ASSUMPTIONS, H100, LLAMA70, MIMO
from benchmarks.at_scale.step import Batch, Machine, Target
from mtpc.lab.table import Table

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (1024, 8192)
LAYOUTS = tuple((target, ranks) for target in (MIMO, LLAMA70) for ranks in (1, 2, 4, 8))
SHOWN = ((MIMO, 1), (MIMO, 8), (LLAMA70, 4), (LLAMA70, 8))  # in tables with several rows of each
SHORT = replace(FASTMTP, name=f"FastMTP, {LANGUAGES:,} tokens", rows=LANGUAGES)
CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as it stands", {}),
    ("bandwidth x 0.8", {"bandwidth": 0.8 * H100.bandwidth}),
    ("peak x 0.7", {"peak": 0.7 * H100.peak}),
    ("a layer's 0.02 ms x 2", {"layer": 2 * H100.layer}),
    ("a step's 0.5 ms x 4", {"step": 4 * H100.step}),
    ("a request's 0.005 ms x 4", {"request": 4 * H100.request}),
    ("all-reduces and gathers x 0.5", {"reducing": 0.5}),
    ("all-reduces and gathers x 2", {"reducing": 2.0}),
    ("a pass's 0.1 ms x 4", {"draft_step": 4 * H100.draft_step}),
    ("a drafting step's 1 ms x 0", {"drafting": 0.0}),
    ("a drafting step's 1 ms x 5.4, as SGLang's in 2025", {"drafting": 5.4 * H100.drafting}),
)


def cell(value: float) -> str:
    """Format a cell; a hyphen if weights and caches do not fit."""
    return "-" if isnan(value) else f"{value:.2f}"


def steps(context: int) -> Table:
    """Return milliseconds of steps without drafts, including batches that do not fit together with a drafter."""
    rows = [
        [target.name, str(ranks), *(cell(1e3 * target.step(H100, Batch(size, context, ranks))) for size in BATCHES)]
        for target, ranks in SHOWN
    ]
    title = f"Milliseconds of a step without drafts by batch size, {context:,} tokens of context per request"
    return Table(title, ["target", "TP", *map(str, BATCHES)], rows)


def break_evens(target: Target, ranks: int, context: int) -> Table:
    """Return the break-even acceptance lengths of all drafters by batch size."""
    rows = [
        [drafter.name, str(drafter.drafts), *(cell(each) for each in along(H100, target, drafter, ranks, context))]
        for drafter in DRAFTERS
    ]
    where = f"{target.name}, TP {ranks}, {context:,} tokens of context per request"
    columns = ["drafter", "drafts", *map(str, BATCHES)]
    return Table(f"Break-even acceptance length by batch size: {where}", columns, rows)


def along(machine: Machine, target: Target, drafter: Drafter, ranks: int, context: int) -> list[float]:
    """Return the break-even acceptance lengths of a drafter by batch size."""
    return [break_even(machine, target, drafter, Batch(size, context, ranks)) for size in BATCHES]


def by_layout() -> Table:
    """Return the break-even acceptance lengths of one drafter by target, ranks and context."""
    rows = [
        [target.name, str(ranks), f"{context:,}", *map(cell, along(H100, target, SHORT, ranks, context))]
        for target, ranks in LAYOUTS
        for context in CONTEXTS
    ]
    return Table(
        f"Break-even acceptance length by batch size: {SHORT.name}, K = 3",
        ["target", "TP", "context", *map(str, BATCHES)],
        [row for row in rows if set(row[3:]) != {"-"}],
    )


def sensitivity() -> Table:
    """Return the break-even acceptance lengths of one drafter under changed assumptions."""
    cases = [(target, size) for target in (MIMO, LLAMA70) for size in (1, 64, 256)]
    rows = [
        [
            what,
            *(
                cell(break_even(H100._replace(**changed), target, SHORT, Batch(size, ranks=8)))
                for target, size in cases
            ),
        ]
        for what, changed in CHANGES
    ]
    columns = ["assumption", *(f"{target.name}, batch {size}" for target, size in cases)]
    return Table(f"Break-even acceptance length, {SHORT.name}, K = 3, TP 8", columns, rows)


def assumptions() -> Table:
    """Return the assumptions with their sources."""
    return Table("Assumptions", ["quantity", "value", "from"], [list(row) for row in ASSUMPTIONS])
