"""The picture that README begins with: tokens/s without and with a drafter, one request at a time.

    python -m benchmarks.plot_gains --results "a model, its drafter" runs/bench/results.json ... --out docs/gains.png

Each file is what `mtpc bench` wrote and becomes one panel; its points of batch size 1 become pairs of bars.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.arguments import one_sentence
from mtpc.errors import MTPCError
from mtpc.files.json_file import read_json

WITHOUT, WITH, SUBDUED = "#b8bec7", "#1f6feb", "#57606a"
WIDTH = 0.38  # of a bar; two stand on each temperature
ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}  # by the name of the package


class Pair(NamedTuple):
    """Tokens/s at one temperature, of all rounds together and of each."""

    temperature: float
    without: float
    with_drafter: float
    speedup: float
    rounds_without: tuple[float, ...]
    rounds_with: tuple[float, ...]


class Panel(NamedTuple):
    """One results.json: what was served, on what, and the pairs of bars."""

    title: str
    served_by: str
    machine: str
    pairs: tuple[Pair, ...]


def read_panel(title: str, file: Path) -> Panel:
    """The points of batch size 1 of a results.json.

    Errors: `MTPCError` for a file that `mtpc bench` did not write, or without such points.
    """
    results = read_json(file)
    try:
        points = sorted((p for p in results["points"] if p["batch_size"] == 1), key=lambda p: float(p["temperature"]))
        pairs = tuple(map(_pair, points))
        served_by, machine = _engine(results["provenance"]), _machine(results["provenance"]["hardware"])
    except (KeyError, TypeError) as error:
        raise MTPCError(f"{file} is not a results.json of `mtpc bench` ({error!r}).") from None
    if not pairs:
        raise MTPCError(f"{file} has no measurement of one request at a time (--batch-sizes 1).")
    return Panel(title, served_by, machine, pairs)


def _pair(point: Mapping[str, Any]) -> Pair:
    return Pair(
        point["temperature"],
        point["tokens_per_second_without"],
        point["tokens_per_second_with"],
        point["speedup"],
        tuple(measured["tokens_per_second"] for measured in point["rounds_without"]),
        tuple(measured["tokens_per_second"] for measured in point["rounds_with"]),
    )


def _engine(provenance: Mapping[str, Any]) -> str:
    versions = provenance["versions"]
    return ", ".join(f"{title} {versions[name]}" for name, title in ENGINES.items() if name in versions)


def _machine(hardware: Mapping[str, Any]) -> str:
    return str(hardware.get("gpu") or f"{hardware['cores']} cores of {hardware['processor']}")


def draw(panels: Sequence[Panel]) -> Figure:
    """A panel for each file: grey without, blue with the drafter, the speed-up above."""
    figure = Figure(figsize=(max(6.0, 1.2 + 3.3 * len(panels)), 4.2), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel)
    axes = figure.axes[0]
    axes.set_ylabel("tokens/s")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    machines = " / ".join(dict.fromkeys(panel.machine for panel in panels))
    figure.supxlabel(f"one request at a time, {machines}", fontsize=9, color=SUBDUED)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    without = [(pair.without, pair.rounds_without) for pair in panel.pairs]
    drafted = [(pair.with_drafter, pair.rounds_with) for pair in panel.pairs]
    _draw_bars(axes, without, -WIDTH / 2, "without a drafter", WITHOUT, "black")
    _draw_bars(axes, drafted, WIDTH / 2, "with the drafter", WITH, "white")
    for index, pair in enumerate(panel.pairs):
        top = max(pair.with_drafter, pair.without, *pair.rounds_with, *pair.rounds_without)
        axes.annotate(
            f"{pair.speedup:.2f}x",
            (index, top),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=14,
            fontweight="bold",
        )
    names = ["greedy" if pair.temperature == 0 else f"temperature {pair.temperature:g}" for pair in panel.pairs]
    axes.set_xticks(range(len(names)), names)
    axes.set_title(f"{panel.title}\n{panel.served_by}", fontsize=10)
    axes.margins(y=0.18)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(
    axes: Axes, rates: Sequence[tuple[float, Sequence[float]]], offset: float, label: str, colour: str, text: str
) -> None:
    """Bars of one kind with the range of their rounds.  rates: tokens/s of all rounds together, and of each."""
    heights = [height for height, _ in rates]
    # What all rounds bring together may lie a hair outside of each.
    low = [max(0.0, height - min(rounds)) for height, rounds in rates]
    high = [max(0.0, max(rounds) - height) for height, rounds in rates]
    centres = [index + offset for index in range(len(heights))]
    axes.bar(centres, heights, WIDTH, yerr=[low, high], label=label, color=colour, ecolor=SUBDUED, capsize=3)
    for centre, height in zip(centres, heights, strict=True):
        axes.text(centre, height / 2, f"{height:.0f}", ha="center", va="center", color=text)


@one_sentence
def main() -> None:
    """Read the results, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", nargs=2, action="append", required=True, metavar=("TITLE", "FILE"))
    parser.add_argument("--out", type=Path, default=Path("docs/gains.png"))
    arguments = parser.parse_args()
    panels = [read_panel(title, Path(file)) for title, file in arguments.results]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"font.size": 10}):
        draw(panels).savefig(arguments.out, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
