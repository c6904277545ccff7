"""`mtpc plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.console import console
from mtpc.lab.options.names import EngineName
from mtpc.lab.options.numbers import MOST_REQUESTS


def plan(
    results: Annotated[Path, typer.Argument(help="The results.json of `mtpc bench`, of two batch sizes or more.")],
    max_batch: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Requests at a time that the server takes.")
    ] = 16,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Write a configuration for the engine's --config.")
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="The engine that --out is for [default: that was measured].")
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Let drafts of --out also go on as the request's own text did before.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace a file.")] = False,
) -> None:
    """What to serve with on this machine, from what `mtpc bench` measured on it.

    A step that verifies drafts costs more than one that does not, and the more requests there are, the more: on a full
    machine a long draft is slower than none. From the measured steps and the acceptance at each position follows the
    number of drafts that pays at each batch size, 0 where none does. Printed are vLLM's settings for it:
    `num_speculative_tokens_per_batch_size`, and with copying `step_cost`, by which the length of every draft is chosen
    in place of the table that the server times when it starts; sampling costs more, so let `mtpc bench` measure a
    temperature above 0 as well.

    With --out they are written as a configuration, ready to serve the target and the drafter that were measured; where
    drafting pays at no batch size, without the drafter. SGLang's drafts all have one length: that which pays for one
    request at a time; but with --copy, where it runs without CUDA graphs, that which pays in each step. Arguments that
    the servers of the benchmark were given besides are yours to add.

    Examples:
    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --batch-sizes 1,4,16 --out runs/bench

    mtpc plan runs/bench/results.json

    mtpc plan runs/bench/results.json --out runs/byte.yaml

    vllm serve --config runs/byte.yaml

    mtpc plan runs/bench/results.json --copy --out runs/byte-copying.yaml

    mtpc plan runs/bench/results.json --engine sglang --out runs/byte-sglang.yaml
    """
    from mtpc.errors import MTPCError
    from mtpc.lab.bench import configuration
    from mtpc.lab.bench.plan import best_drafts, measured_costs, predicted_speedup, read_results, schedule
    from mtpc.lab.table import Table

    if out is not None:
        configuration.check_writable(out, force)
    elif engine is not None or copy or force:
        raise MTPCError("--engine, --copy and --force are about the file that --out writes: name one.")
    terminal, timed = console(), read_results(results)
    served = None if out is None else configuration.read_measured_server(results)
    if served is not None:
        configuration.check_measured_server(served)
    found = measured_costs(timed)
    rows = []
    for point in timed:
        cost = found.cost.of(greedy=point.temperature == 0)
        best = best_drafts(cost, point.batch, point.rates)
        speedup = (1 + sum(point.rates)) * point.without / point.with_drafter
        rows.append(
            [
                f"{point.temperature:g}",
                str(point.batch),
                f"{speedup:.2f}",
                f"{predicted_speedup(cost, point.batch, point.rates, len(point.rates)):.2f}",
                str(best),
                f"{predicted_speedup(cost, point.batch, point.rates, best):.2f}",
            ]
        )
    columns = ["T", "batch", "measured", "predicted", "drafts that pay", "predicted with them"]
    terminal.print(Table(f"Speed-up of steps with {timed[0].tokens - 1} drafts", columns, rows).to_rich())
    terminal.print(f"A step without drafts says one token to one request in {1000 * found.seconds:.2f} ms.")
    greedy = min(timed, key=lambda point: point.temperature)
    ranges = schedule(found.cost, greedy.rates, max_batch)
    told = {"num_speculative_tokens_per_batch_size": ranges}
    copying = {"mtpc": {"copy": True, "step_cost": found.cost.model_dump(exclude_defaults=True)}}
    for title, values in (("In --speculative-config:", told), ("With copying, --additional-config:", copying)):
        terminal.print(title, highlight=False)
        terminal.out(json.dumps(values), highlight=False)
    if out is not None and served is not None:
        served = served if engine is None else served._replace(engine=engine)
        settings = configuration.configuration(served, ranges, copying if copy else None)
        configuration.write(out, served.engine, settings)
        if not configuration.has_drafter(settings):
            terminal.print("No draft pays: the configuration is without the drafter.", highlight=False)
        terminal.out(f"written to {out}: {configuration.serve_command(served.engine, out)}", highlight=False)
