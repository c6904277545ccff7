"""Plot tokens/s without and with a drafter at batch size 1, as shown in docs/benchmarks/byte-level.md.

    python -m benchmarks.plot_gains --results "a model, its drafter" runs/bench/results.json ... --out docs/gains.png

Each results.json of `mtpc bench` becomes one panel.  Each temperature of batch size 1 becomes a pair of bars, with the
range of the rounds as error bars.
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

from benchmarks.arguments import one_sentence, output_file
from mtpc.errors import MTPCError
from mtpc.files.json_file import read_json

WITHOUT, WITH, SUBDUED = "#b8bec7", "#1f6feb", "#57606a"
WIDTH = 0.38  # of a bar; each temperature has two
ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}  # titles by package


class Pair(NamedTuple):
    """Tokens/s at one temperature, over all rounds and of each round."""

    temperature: float
    without: float
    with_drafter: float
    speedup: float
    rounds_without: tuple[float, ...]
    rounds_with: tuple[float, ...]


class Panel(NamedTuple):
    """The contents of one results.json: title, engine, machine, and one pair of bars for each temperature."""

    title: str
    served_by: str
    machine: str
    pairs: tuple[Pair, ...]


def read_panel(title: str, file: Path) -> Panel:
    """Read the measurements of batch size 1.

    Args:
        title: Title of the panel.
        file: A results.json of `mtpc bench`.

    Raises:
        MTPCError: The file is of another kind, or has no measurement of batch size 1.
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
    """Draw a panel for each file: gray bars without, blue bars with the drafter, and the speedup above them."""
    figure = Figure(figsize=(max(6.0, 1.2 + 3.3 * len(panels)), 4.2), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel)
    axes = figure.axes[0]
    axes.set_ylabel("tokens/s")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    machines = " / ".join(dict.fromkeys(panel.machine for panel in panels))
    figure.supxlabel(f"batch size 1, {machines}", fontsize=9, color=SUBDUED)
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
    axes: Axes, rates: Sequence[tuple[float, Sequence[float]]], offset: float, label: str, color: str, text: str
) -> None:
    """Draw the bars of one color; ``rates`` are tokens/s over all rounds, and of each for the error bar."""
    heights = [height for height, _ in rates]
    # By rounding, tokens/s over all rounds may be slightly outside the range of the rounds.
    low = [max(0.0, height - min(rounds)) for height, rounds in rates]
    high = [max(0.0, max(rounds) - height) for height, rounds in rates]
    centers = [index + offset for index in range(len(heights))]
    axes.bar(centers, heights, WIDTH, yerr=[low, high], label=label, color=color, ecolor=SUBDUED, capsize=3)
    for center, height in zip(centers, heights, strict=True):
        axes.text(center, height / 2, f"{height:.0f}", ha="center", va="center", color=text)


@one_sentence
def main() -> None:
    """Read the results and write the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results = "add a panel with this title for this results.json; may be repeated"
    parser.add_argument("--results", nargs=2, action="append", required=True, metavar=("TITLE", "FILE"), help=results)
    out = "write the plot to this file (default: %(default)s)"
    parser.add_argument("--out", type=output_file, default=Path("docs/gains.png"), help=out)
    arguments = parser.parse_args()
    panels = [read_panel(title, Path(file)) for title, file in arguments.results]
    with matplotlib.rc_context({"font.size": 10}):
        draw(panels).savefig(arguments.out, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
