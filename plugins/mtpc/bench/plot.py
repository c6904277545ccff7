"""The benchmark's picture: speed-up and acceptance over the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from mtpc.bench.results import Point, drafts_by_temperature


def draw(points: Sequence[Point]) -> Figure:
    """Three panels: speed-up, acceptance length (over batch size), conditional rate (over position)."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    speed, length, rates = figure.subplots(1, 3)
    for temperature, drafts in drafts_by_temperature(points).items():
        chosen = sorted((p for p in points if p.temperature == temperature), key=lambda point: point.batch_size)
        sizes, label = [point.batch_size for point in chosen], f"temperature {temperature:g}"
        speedups = [point.speedup for point in chosen]
        low = [point.speedup - min(point.speedups) for point in chosen]
        high = [max(point.speedups) - point.speedup for point in chosen]
        errors = [[max(0.0, value) for value in side] for side in (low, high)]
        speed.errorbar(sizes, speedups, yerr=errors, marker="o", capsize=3, label=label)
        length.plot(sizes, [point.drafts.acceptance_length for point in chosen], marker="o", label=label)
        positions = range(1, len(drafts.accepted_at) + 1)
        rates.plot(positions, drafts.conditional_rates, marker="o", label=label)
    sizes = sorted({point.batch_size for point in points})
    for axes in (speed, length):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("batch size (requests at a time)")
    speed.axhline(1.0, color="grey", linewidth=1)
    speed.set(title="Speed-up", ylabel="tokens/s with drafter / without", ylim=(0, None))
    length.set(title="Acceptance length", ylabel="tokens per step of the target", ylim=(1, None))
    rates.set(title="Conditional acceptance rate", xlabel="position in the draft", ylim=(0, 1))
    for axes in (speed, length, rates):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def save(file: Path, points: Sequence[Point]) -> None:
    """Write the picture as PNG."""
    with matplotlib.rc_context({"font.size": 9}):
        draw(points).savefig(file, dpi=130)
