"""Compute cost and gain of drafters on one to eight GPUs at batch sizes 1 to 256, without a GPU.

    python -m benchmarks.at_scale --plot docs/at-scale.png --json runs/at-scale.json
    python -m benchmarks.at_scale --measured runs/bench/results.json

Prints the tables of docs/at-scale.md, which also describes the model and its accuracy.  Nothing is timed.  With
--measured it prints one table for your own machine instead.  Step costs are then read from the results of
`mtpc bench --fixed-length`, as in `mtpc plan`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.arguments import listed, one_sentence, output_file
from benchmarks.at_scale import checks, costs, gains
from benchmarks.at_scale.costs import BATCHES, CONTEXTS, LAYOUTS
from benchmarks.at_scale.drafters import DRAFTERS, break_even
from benchmarks.at_scale.machines import H100, LLAMA70, MIMO
from benchmarks.at_scale.plot import draw
from benchmarks.at_scale.step import Batch
from mtpc.lab.bench.plan import measured_costs, read_results
from mtpc.lab.table import Table


def tables() -> list[Table]:
    """Return all tables of docs/at-scale.md, and more."""
    short, long = CONTEXTS
    return [
        costs.steps(short),
        costs.break_evens(MIMO, 8, short),
        costs.break_evens(LLAMA70, 8, short),
        costs.break_evens(MIMO, 1, short),
        costs.by_layout(),
        gains.gains(short),
        gains.losing(short),
        gains.losing(long),
        costs.sensitivity(),
        *checks.tables(),
        costs.assumptions(),
    ]


def everything() -> list[dict[str, Any]]:
    """Return all cells for --json: seconds of steps and drafts, and the break-even length, null if nothing fits."""
    found = []
    for (target, ranks), context, drafter, size in product(LAYOUTS, CONTEXTS, DRAFTERS, BATCHES):
        batch = Batch(size, context, ranks)
        length = break_even(H100, target, drafter, batch)
        found.append(
            {
                "target": target.name,
                "ranks": ranks,
                "context": context,
                "drafter": drafter.name,
                "drafts": drafter.drafts,
                "batch": size,
                "seconds_of_a_step_without": target.step(H100, batch),
                "seconds_of_a_step_with": target.step(H100, batch, drafter.drafts),
                "seconds_of_its_drafts": drafter.seconds(H100, target, batch),
                "break_even_acceptance_length": None if isnan(length) else length,
            }
        )
    return found


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write the plot and the cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--plot", type=output_file, metavar="FILE.png", help="plot break-even acceptance lengths to this file")
    add("--json", type=output_file, metavar="FILE.json", help="write all cells to this file")
    add("--measured", type=Path, metavar="results.json", help="use step costs that `mtpc bench` measured")
    add(
        "--accepted",
        type=listed(float),
        help="with --measured: marginal acceptance rates by position, comma-separated (default: the measured ones)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.measured is None:
        found = tables()
    else:
        timed = read_results(chosen.measured)
        accepted = chosen.accepted or min(timed, key=lambda point: point.temperature).rates
        found = [gains.of_measured(measured_costs(timed).cost, accepted)]
    for table in found:
        Console().print(table.to_markdown(), markup=False, soft_wrap=True)
    if chosen.plot is not None:
        draw().savefig(chosen.plot, dpi=110)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(everything(), indent=1))


if __name__ == "__main__":
    sys.exit(main())
