"""Plot of docs/at-scale.md: break-even acceptance length by batch size."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.at_scale.costs import BATCHES, CONTEXTS, along
from benchmarks.at_scale.drafters import DRAFTERS
from benchmarks.at_scale.machines import H100, LLAMA70, MIMO
from benchmarks.at_scale.step import Target

PANELS = ((MIMO, 1), (MIMO, 8), (LLAMA70, 8))
COLORS = {
    "FastMTP": "#1f6feb",
    "Gumiho, joint": "#cf222e",
    "Gumiho": "#8250df",
    "EAGLE-like": "#57606a",
    "prompt lookup": "#1a7f37",
    "the engine's n-gram": "#9a6700",
}


def draw() -> Figure:
    """Draw one panel for each target and number of ranks; drafters with a draft vocabulary are dashed or dotted."""
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    for axes, (target, ranks) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
        _panel(axes, target, ranks)
    axes = figure.axes[0]
    axes.set_ylabel("break-even acceptance length")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, target: Target, ranks: int) -> None:
    for drafter in DRAFTERS:
        style = "-" if drafter.rows is None else "--" if drafter.rows > 8192 else ":"
        color = next(color for name, color in COLORS.items() if drafter.name.startswith(name))
        lengths = along(H100, target, drafter, ranks, CONTEXTS[0])
        label = f"{drafter.name} (K = {drafter.drafts})"
        axes.plot(BATCHES, lengths, style, color=color, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCHES, [str(size) for size in BATCHES])
    axes.set_xlabel("batch size")
    axes.set_title(f"{target.name}, TP {ranks}, {H100.name}", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
