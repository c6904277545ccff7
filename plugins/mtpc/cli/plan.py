"""`mtpc plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def plan(
    results: Annotated[Path, typer.Argument(help="The results.json of `mtpc bench`, of two batch sizes or more.")],
    max_batch: Annotated[int, typer.Option(min=1, help="Requests at a time that the server takes.")] = 16,
) -> None:
    """What to serve with on this machine, from what `mtpc bench` measured on it.

    A step that verifies drafts costs more than one that does not, and the more requests there are, the more: on a full
    machine a long draft is slower than none. From the measured steps and the acceptance at each position follows the
    number of drafts that pays at each batch size, 0 where none does. Printed are vLLM's settings for it:
    `num_speculative_tokens_per_batch_size`, and with copying `step_cost`, by which the length of every draft is chosen.

    Examples:

    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --batch-sizes 1,4,16 --out runs/bench

    mtpc plan runs/bench/results.json
    """
    from mtpc.bench.plan import best_drafts, measured, predicted, read_results, schedule
    from mtpc.table import Table

    console, timed = Console(), read_results(results)
    found = measured(timed)
    rows = []
    for point in timed:
        best = best_drafts(found.cost, point.batch, point.rates)
        speedup = (1 + sum(point.rates)) * point.without / point.with_drafter
        rows.append(
            [
                f"{point.temperature:g}",
                str(point.batch),
                f"{speedup:.2f}",
                f"{predicted(found.cost, point.batch, point.rates, len(point.rates)):.2f}",
                str(best),
                f"{predicted(found.cost, point.batch, point.rates, best):.2f}",
            ]
        )
    columns = ["T", "batch", "measured", "predicted", "drafts that pay", "predicted with them"]
    console.print(Table(f"Speed-up of steps with {timed[0].tokens - 1} drafts", columns, rows).to_rich())
    cost = found.cost
    console.print(f"A step without drafts says one token to one request in {1000 * found.seconds:.2f} ms.")
    greedy = min(timed, key=lambda point: point.temperature)
    told = {"num_speculative_tokens_per_batch_size": schedule(cost, greedy.rates, max_batch)}
    copying = {"mtpc": {"copy": True, "step_cost": cost.model_dump()}}
    for title, values in (("In --speculative-config:", told), ("With copying, --additional-config:", copying)):
        console.print(title, highlight=False)
        console.out(json.dumps(values), highlight=False)
