"""Tables and plot of `benchmarks/drafters.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mtpc.lab.table import Table

MISSING = "-"


class Row(NamedTuple):
    """A row of the tables: a drafter's chain or one of its trees.

    Attributes:
        title: Heading of the row.
        drafter: Name of the drafter, which is also the title of its chain.
        tokens: Tokens that the target verifies in a decoding step.
    """

    title: str
    drafter: str
    tokens: int


class Cell(NamedTuple):
    """The target's outputs after the prompts of one category.

    Attributes:
        title: Set of prompts.
        temperature: Sampling temperature of the target.
        kind: Prompt category.
    """

    title: str
    temperature: float
    kind: str


Found = dict[Cell, dict[str, dict[str, Any]]]  # by the title of a row: `Counts.to_json`


def make_tables(rows: Sequence[Row], found: Found) -> list[Table]:
    """Return acceptance lengths for each set of prompts and temperature, and accuracies at temperature 0."""
    tables = []
    for title, temperature, by_kind in sets(found):
        name = f"{title}, T = {temperature:g}"
        lines = []
        for row in rows:
            lengths, chain = _lengths(by_kind, row.title), _lengths(by_kind, row.drafter)
            mean = fmean(lengths)
            cells = [*(f"{length:.2f}" for length in lengths), f"{mean:.2f}", f"{mean / fmean(chain):.2f}x"]
            lines.append([row.title, str(row.tokens), *cells])
        columns = ["drafter", "tokens verified", *by_kind, "mean", "relative to its chain"]
        tables.append(Table(f"Acceptance length (expected), {name}", columns, lines))
        if temperature == 0:
            accuracies = {row.title: accuracy(by_kind, row.title) for row in rows if row.title == row.drafter}
            longest = max(map(len, accuracies.values()))
            lines = [
                [title, *(f"{100 * rate:.1f}%" for rate in rates), *[MISSING] * (longest - len(rates))]
                for title, rates in accuracies.items()
            ]
            columns = ["drafter", *(f"draft token {number}" for number in range(1, longest + 1))]
            heading = f"Accuracy of each draft token, everything before it being right, {name}"
            tables.append(Table(heading, columns, lines))
    return tables


def draw_accuracy(rows: Sequence[Row], found: Found) -> Figure | None:
    """Draw accuracies, one panel for each set of prompts, one line for each drafter; None without temperature 0."""
    greedy = [(title, by_kind) for title, temperature, by_kind in sets(found) if temperature == 0]
    if not greedy:
        return None
    figure = Figure(figsize=(1.0 + 4.6 * len(greedy), 4.2), layout="constrained")
    for axes, (title, by_kind) in zip(figure.subplots(1, len(greedy), squeeze=False)[0], greedy, strict=True):
        for row in rows:
            if row.title == row.drafter:
                rates = accuracy(by_kind, row.title)
                axes.plot(range(1, len(rates) + 1), [100 * rate for rate in rates], marker="o", label=row.title)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("draft token")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
    axes = figure.axes[0]
    axes.set_ylabel("accuracy, everything before it being right (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return figure


def sets(found: Found) -> Iterator[tuple[str, float, Mapping[str, Mapping[str, Any]]]]:
    """Yield each set of prompts at each temperature, with its results by category."""
    together: dict[tuple[str, float], dict[str, Mapping[str, Any]]] = {}
    for cell, rates in found.items():
        together.setdefault((cell.title, cell.temperature), {})[cell.kind] = rates
    for (title, temperature), by_kind in together.items():
        yield title, temperature, by_kind


def accuracy(by_kind: Mapping[str, Mapping[str, Any]], title: str) -> list[float]:
    """Return the accuracy of each draft token, mean over the categories."""
    each = (rates[title]["accuracy_given_the_text"] for rates in by_kind.values())
    return [fmean(rates) for rates in zip(*each, strict=True)]


def _lengths(by_kind: Mapping[str, Mapping[str, Any]], title: str) -> list[float]:
    return [rates[title]["acceptance_length"] for rates in by_kind.values()]
