"""Tables and plot of `benchmarks/speed.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from mtpc.lab.bench.report import speed_cell
from mtpc.lab.table import Table

ALL, MISSING = "all", "-"
# Milliseconds of a decoding step by its parts: Vicuna 7B on one GPU, table 3 of the Gumiho paper (arXiv:2503.10135).
PAPER = {
    "draft step 1": 2.80,
    "draft step 2": 3.46,
    "parallel": 2.02,
    "tree": 3.41,
    "other": 6.11,
    "verification": 45.50,
}

Found = dict[tuple[str, float, str], dict[str, Any]]  # by name, temperature and kind: `Point.to_json`


def make_tables(found: Found, kinds: Sequence[str]) -> list[Table]:
    """Return the speeds at each temperature, and the shares of a decoding step if parts of drafting were timed."""
    tables = []
    for temperature in temperatures(found):
        by_name = of_temperature(found, temperature)
        rows = [["no drafter", *(_without(by_name.values(), kind) for kind in kinds)]]
        for name, points in by_name.items():
            rows.append([name, *(_with(points, kind) for kind in kinds)])
        title = f"Tokens/s (speedup, acceptance length), T = {temperature:g}"
        tables.append(Table(title, ["drafter", *kinds], rows))
        parts = {name: shares(points.values()) for name, points in by_name.items()}
        if any(parts.values()):
            *drafting, other, verification = PAPER
            columns = list(dict.fromkeys([*drafting, *(part for of in parts.values() for part in of)]))
            columns = [*(part for part in columns if part not in (other, verification)), other, verification]
            whole = sum(PAPER.values())
            parts = {**parts, "Gumiho paper, table 3": {part: time / whole for part, time in PAPER.items()}}
            rows = [
                [name, *(f"{100 * of[part]:.1f}%" if part in of else MISSING for part in columns)]
                for name, of in parts.items()
                if of
            ]
            tables.append(Table(f"Shares of a decoding step, T = {temperature:g}", ["drafter", *columns], rows))
    return tables


def draw_speedups(found: Found) -> Figure:
    """Draw the speedup over all categories: one panel for each temperature, one bar for each drafter."""
    panels = temperatures(found)
    names = list(dict.fromkeys(name for name, _, _ in found))
    figure = Figure(figsize=(3.2 + 3.4 * len(panels), 1.4 + 0.34 * len(names)), layout="constrained")
    for axes, temperature in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
        by_name = of_temperature(found, temperature)
        speeds = [speed(by_name[name].values())[1] if name in by_name else 0.0 for name in names]
        bars = axes.barh(names, speeds, color="#1f6feb")
        axes.bar_label(bars, [f"{value:.2f}x" if value else MISSING for value in speeds], padding=3, fontsize=9)
        axes.axvline(1.0, color="#57606a", linewidth=1)
        axes.set_title(f"T = {temperature:g}", fontsize=10)
        axes.margins(x=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].invert_yaxis()
    figure.supxlabel("speedup over no drafter, all prompt categories", fontsize=9)
    return figure


def temperatures(found: Found) -> list[float]:
    """Return the temperatures in the order of the results."""
    return list(dict.fromkeys(temperature for _, temperature, _ in found))


def of_temperature(found: Found, temperature: float) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the results at a temperature, by drafter and category."""
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for (name, at, kind), point in found.items():
        if at == temperature:
            by_name.setdefault(name, {})[kind] = point
    return by_name


def speed(points: Iterable[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Return tokens/s with a drafter, the speedup and the acceptance length over several categories."""
    both = list(points)
    drafted, without = ([one for point in both for one in point[f"rounds_{way}"]] for way in ("with", "without"))
    rate, plain = (sum(m["tokens"] for m in ms) / sum(m["seconds"] for m in ms) for ms in (drafted, without))
    tokens = sum(m["tokens"] - m["requests"] for m in drafted)
    steps = sum(max(m["tokens"] - m["requests"] - m["accepted_tokens"], m["drafts"]) for m in drafted)
    return rate, rate / plain, tokens / steps if steps else float("nan")


def shares(points: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return shares of the wall time, mean over all rounds; empty where the parts of drafting were not timed.

    The keys are the parts of drafting, "other" for all other drafting time, and "verification" for everything else.
    """
    rounds = [one for point in points for one in point["rounds_with"] if one["seconds_of_its_parts"] and one["drafts"]]
    if not rounds:
        return {}
    names = dict.fromkeys(part for one in rounds for part in one["seconds_of_its_parts"])
    calls = [one["drafting_calls"] / one["seconds"] for one in rounds]  # per second
    found = {
        part: fmean(one["seconds_of_its_parts"].get(part, 0.0) * each for one, each in zip(rounds, calls, strict=True))
        for part in names
    }
    drafting = fmean(one["seconds_of_a_drafting_call"] * each for one, each in zip(rounds, calls, strict=True))
    return found | {"other": drafting - sum(found.values()), "verification": 1 - drafting}


def _with(points: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    """Return the cell of a drafter."""
    chosen = list(points.values()) if kind == ALL else [points[kind]] if kind in points else []
    return speed_cell(*speed(chosen)) if chosen else MISSING


def _without(others: Iterable[Mapping[str, Mapping[str, Any]]], kind: str) -> str:
    """Return the cell of the engine without a drafter, over its measurements next to all drafters."""
    points = [point for of in others for name, point in of.items() if kind in (name, ALL)]
    rounds = [one for point in points for one in point["rounds_without"]]
    return f"{sum(m['tokens'] for m in rounds) / sum(m['seconds'] for m in rounds):.1f}" if rounds else MISSING
