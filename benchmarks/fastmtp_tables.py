"""The tables of `benchmarks/fastmtp.py`: a row for each setup, two columns for each kind of text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.fastmtp_setups import Setup, Tables
from mtpc.lab.bench.results import Point
from mtpc.lab.table import Table
from mtpc.verify import Rates

MISSING = "-"


class Found:
    """What was found of a setup, by kind of text; the points of an engine where it was measured."""

    def __init__(self, setup: Setup, rates: dict[str, Rates]) -> None:
        self.setup, self.rates = setup, rates
        self.points: dict[str, Point] = {}

    @property
    def mean_length(self) -> float:
        """The expected acceptance length, every kind weighing the same."""
        return fmean(rates.length for rates in self.rates.values())

    @property
    def engine_length(self) -> float:
        """The engine's own acceptance length, likewise."""
        return fmean(point.drafts.acceptance_length for point in self.points.values())

    @property
    def tokens_per_second(self) -> float:
        """With the drafter, likewise."""
        return fmean(point.rate_with for point in self.points.values())

    @property
    def speedup(self) -> float:
        """Of the means of tokens per second, as in the paper's tables."""
        return self.tokens_per_second / fmean(point.rate_without for point in self.points.values())

    def to_json(self) -> dict[str, Any]:
        """Everything but texts."""
        kinds = {
            kind: {"expected": rates.to_json(), "engine": self.points[kind].to_json() if self.points else None}
            for kind, rates in self.rates.items()
        }
        setup = {name: getattr(self.setup, name) for name in ("drafter", "num_drafts", "size", "language")}
        return {"label": self.setup.label, **setup, "kinds": kinds}


def make_tables(chosen: Tables, found: dict[Setup, Found], limits: Sequence[float]) -> list[Table]:
    """All tables that have rows.

    limits: for K = 1, 2, ..., what a step without drafts costs over one that verifies K of them; the speed-up that a
    machine allows is that times the acceptance length.
    """
    first = "Acceptance length (expected) and tokens/s by kind of text"
    titled = (
        (first, chosen.methods),
        (f"{first}: sizes of the draft vocabulary", chosen.sizes),
        (f"{first}: one language's draft vocabulary for all", chosen.languages),
    )
    return [make_table(title, [found[setup] for setup in setups], limits) for title, setups in titled if setups]


def make_table(title: str, rows: Sequence[Found], limits: Sequence[float]) -> Table:
    """One row for each setup, the engine without a drafter first."""
    kinds = list(rows[0].rates)
    columns = ["K", "method", *(name for kind in kinds for name in (f"{kind} τ", "tokens/s"))]
    columns += ["mean τ", "tokens/s", "speed-up", "engine τ", "of the limit"]
    measured = [row for row in rows if row.points]
    lines = [baseline(kinds, measured)] if measured else []
    for row in rows:
        cells = [str(row.setup.num_drafts), row.setup.label]
        for kind in kinds:
            speed = f"{row.points[kind].rate_with:.1f}" if row.points else MISSING
            cells += [f"{row.rates[kind].length:.2f}", speed]
        cells.append(f"{row.mean_length:.2f}")
        if row.points:
            cells += [f"{row.tokens_per_second:.1f}", f"{row.speedup:.2f}", f"{row.engine_length:.2f}"]
            cells.append(share_of_limit(row, limits))
        else:
            cells += [MISSING] * 4
        lines.append(cells)
    return Table(title, columns, lines)


def baseline(kinds: Sequence[str], rows: Sequence[Found]) -> list[str]:
    """The engine without a drafter: the mean of what was measured in turn with each setup."""
    speeds = [fmean(row.points[kind].rate_without for row in rows) for kind in kinds]
    cells = ["0", "no drafter", *(cell for speed in speeds for cell in ("1.00", f"{speed:.1f}"))]
    return [*cells, "1.00", f"{fmean(speeds):.1f}", "1.00", "1.00", MISSING]


def share_of_limit(row: Found, limits: Sequence[float]) -> str:
    """The speed-up over that of a drafter that costs nothing and is accepted as often."""
    if len(limits) < row.setup.num_drafts:
        return MISSING
    return f"{100 * row.speedup / (limits[row.setup.num_drafts - 1] * row.engine_length):.0f} %"
