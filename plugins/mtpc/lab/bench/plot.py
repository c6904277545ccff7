"""The benchmark's plot: speedup and acceptance length by batch size, acceptance rate by position."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from mtpc.lab.bench.results import Point, by_drafter, drafts_by_temperature

LINES = ("-", "--", ":")  # line styles of the drafters


def draw(points: Sequence[Point]) -> Figure:
    """Draw three panels: speedup and acceptance length by batch size, and conditional acceptance rate by position.

    Each drafter has a line style, each temperature a color.
    """
    figure = Figure(figsize=(13, 4), layout="constrained")
    speed, length, rates = figure.subplots(1, 3)
    for line, (name, drafted) in zip(cycle(LINES), by_drafter(points).items(), strict=False):
        for number, (temperature, drafts) in enumerate(drafts_by_temperature(drafted).items()):
            chosen = sorted((p for p in drafted if p.temperature == temperature), key=lambda point: point.batch_size)
            sizes, label = [point.batch_size for point in chosen], f"{name}, temperature {temperature:g}"
            style = {"marker": "o", "linestyle": line, "color": f"C{number}", "label": label}
            speedups = [point.speedup for point in chosen]
            low = [point.speedup - min(point.speedups) for point in chosen]
            high = [max(point.speedups) - point.speedup for point in chosen]
            errors = [[max(0.0, value) for value in side] for side in (low, high)]
            speed.errorbar(sizes, speedups, yerr=errors, capsize=3, **style)
            length.plot(sizes, [point.tokens_per_step for point in chosen], **style)
            rates.plot(range(1, len(drafts.accepted_at) + 1), drafts.conditional_rates, **style)
    sizes = sorted({point.batch_size for point in points})
    for axes in (speed, length):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("batch size (concurrent requests)")
    speed.axhline(1.0, color="grey", linewidth=1)
    speed.set(title="Speedup", ylabel="tokens/s with a drafter / without", ylim=(0, None))
    length.set(title="Acceptance length", ylabel="tokens per target forward pass", ylim=(1, None))
    rates.set(title="Conditional acceptance rate", xlabel="position in the draft", ylim=(0, 1))
    for axes in (speed, length, rates):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def save(file: Path, points: Sequence[Point]) -> None:
    """Write the plot as PNG."""
    with matplotlib.rc_context({"font.size": 9}):
        draw(points).savefig(file, dpi=130)
