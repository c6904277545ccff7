"""A step's tree as a picture: from left to right token by token, each with the probability of what leads to it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mtpc.lab.inspect.tree_step import TreeStep

WIDTH, HEIGHT = 1.5, 0.5  # inches for a token and for a path
MOST_PIXELS = 60_000  # of a side: matplotlib draws no larger pictures
TARGET, DRAFTED, BORROWED, ACCEPTED = "#d9cdea", "#d6e4f2", "#fbd9a8", "#1a7f37"


def draw(step: TreeStep) -> Figure:
    """Boxes joined by lines; those of what the target accepted are drawn in green."""
    parents = [node.parent for node in step.nodes] + [step.deepest_accepted]  # the last one is the target's own token
    places = _layout(parents)
    columns, rows = (1 + max(at[axis] for at in places.values()) for axis in range(2))
    figure = Figure(figsize=(0.5 + WIDTH * columns, 1.2 + HEIGHT * rows), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.4, -0.6))
    axes.axis("off")
    said = {-1, len(step.nodes)} | {place for place, node in enumerate(step.nodes) if node.is_accepted}
    for node, parent in enumerate(parents):
        (left, upper), (right, lower) = places[parent], places[node]
        colour, width, above = (ACCEPTED, 2.0, 2) if node in said else ("grey", 0.8, 1)
        middle = (left + right) / 2
        line = [left, middle, middle, right], [upper, upper, lower, lower]
        axes.plot(*line, color=colour, linewidth=width, zorder=above)
    _box(axes, places[-1], step.first, None, TARGET, said=True)
    _box(axes, places[len(step.nodes)], step.last, None, TARGET, said=True)
    for place, drafted in enumerate(step.nodes):
        colour = BORROWED if drafted.is_borrowed else DRAFTED
        _box(axes, places[place], drafted.token, drafted.probability, colour, said=drafted.is_accepted)
    kinds = {"the target's own": TARGET, "drafted": DRAFTED, "borrowed": BORROWED}
    handles = [Patch(facecolor=colour, edgecolor="grey", label=label) for label, colour in kinds.items()]
    handles.append(Patch(facecolor="white", edgecolor=ACCEPTED, linewidth=2.0, label="accepted"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=8)
    return figure


def save(file: Path, step: TreeStep) -> None:
    """Write the picture as PNG."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = draw(step)
        figure.savefig(file, format="png", dpi=min(130.0, MOST_PIXELS / max(figure.get_size_inches())))


def _layout(parents: list[int]) -> dict[int, tuple[float, float]]:
    """Where each node stands, -1 the root: its depth, and a line for each path, shared ones in the middle of theirs."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    found: dict[int, tuple[float, float]] = {}
    lines = iter(range(len(parents) + 1))

    def place(node: int, depth: int) -> float:
        below = [place(child, depth + 1) for child in children.get(node, ())]
        line = (below[0] + below[-1]) / 2 if below else float(next(lines))
        found[node] = (float(depth), line)
        return line

    place(-1, 0)
    return found


def _box(
    axes: Axes, at: tuple[float, float], token: str, probability: float | None, colour: str, *, said: bool
) -> None:
    label = json.dumps(token, ensure_ascii=False)
    if probability is not None:
        label += f"\n{probability:.2g}"
    edge = {"edgecolor": ACCEPTED, "linewidth": 2.0} if said else {"edgecolor": "grey", "linewidth": 0.8}
    box = {"boxstyle": "round,pad=0.25", "facecolor": colour, **edge}
    axes.text(*at, label, ha="center", va="center", fontsize=7, parse_math=False, bbox=box, zorder=3)
