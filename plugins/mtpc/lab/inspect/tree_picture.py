"""Draft tree of one decoding step as a picture, from left to right, with the probability of each prefix."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mtpc.lab.inspect.tree_step import TreeStep

WIDTH, HEIGHT = 1.5, 0.5  # inches per token and per path
MOST_PIXELS = 60_000  # matplotlib's limit for one side
TARGET, DRAFTED, BORROWED, ACCEPTED = "#d9cdea", "#d6e4f2", "#fbd9a8", "#1a7f37"


def draw(step: TreeStep) -> Figure:
    """Return a figure of boxes joined by lines. Accepted tokens are green."""
    parents = [node.parent for node in step.nodes] + [step.deepest_accepted]  # the last is that of the target's token
    positions = _layout(parents)
    columns, rows = (1 + max(at[axis] for at in positions.values()) for axis in range(2))
    figure = Figure(figsize=(0.5 + WIDTH * columns, 1.2 + HEIGHT * rows), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.4, -0.6))
    axes.axis("off")
    emitted = {-1, len(step.nodes)} | {number for number, node in enumerate(step.nodes) if node.is_accepted}
    for node, parent in enumerate(parents):
        (left, upper), (right, lower) = positions[parent], positions[node]
        color, width, order = (ACCEPTED, 2.0, 2) if node in emitted else ("grey", 0.8, 1)
        middle = (left + right) / 2
        line = [left, middle, middle, right], [upper, upper, lower, lower]
        axes.plot(*line, color=color, linewidth=width, zorder=order)
    _box(axes, positions[-1], step.first, None, TARGET, emitted=True)
    _box(axes, positions[len(step.nodes)], step.last, None, TARGET, emitted=True)
    for number, drafted in enumerate(step.nodes):
        color = BORROWED if drafted.is_borrowed else DRAFTED
        _box(axes, positions[number], drafted.token, drafted.probability, color, emitted=drafted.is_accepted)
    legend = {"target token": TARGET, "drafted": DRAFTED, "borrowed": BORROWED}
    handles = [Patch(facecolor=color, edgecolor="grey", label=label) for label, color in legend.items()]
    handles.append(Patch(facecolor="white", edgecolor=ACCEPTED, linewidth=2.0, label="accepted"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=8)
    return figure


def save(file: Path, step: TreeStep) -> None:
    """Draw a draft tree into a PNG file.

    Args:
        file: File to write.
        step: Decoding step with its tree.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = draw(step)
        figure.savefig(file, format="png", dpi=min(130.0, MOST_PIXELS / max(figure.get_size_inches())))


def _layout(parents: list[int]) -> dict[int, tuple[float, float]]:
    """Return (depth, line) of each node; -1 is the root. A node is centered on the lines of its paths."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    positions: dict[int, tuple[float, float]] = {}
    lines = iter(range(len(parents) + 1))

    def visit(node: int, depth: int) -> float:
        below = [visit(child, depth + 1) for child in children.get(node, ())]
        line = (below[0] + below[-1]) / 2 if below else float(next(lines))
        positions[node] = (float(depth), line)
        return line

    visit(-1, 0)
    return positions


def _box(
    axes: Axes, at: tuple[float, float], token: str, probability: float | None, color: str, *, emitted: bool
) -> None:
    label = json.dumps(token, ensure_ascii=False)
    if probability is not None:
        label += f"\n{probability:.2g}"
    edge = {"edgecolor": ACCEPTED, "linewidth": 2.0} if emitted else {"edgecolor": "grey", "linewidth": 0.8}
    box = {"boxstyle": "round,pad=0.25", "facecolor": color, **edge}
    axes.text(*at, label, ha="center", va="center", fontsize=7, parse_math=False, bbox=box, zorder=3)
