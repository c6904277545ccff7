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
    results: Annotated[
        Path,
        typer.Argument(help="Folder or results.json of `mtpc bench`, with batch size 1 and at least one larger."),
    ],
    max_batch: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Largest number of concurrent requests to serve.")
    ] = 16,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Write a configuration for the engine's --config.")
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="Engine to write --out for [default: the measured one].")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Add prompt lookup to the configuration of --out.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")] = False,
) -> None:
    """Choose the number of draft tokens for each batch size, from the results of `mtpc bench` on this machine.

    Verifying draft tokens costs more the more requests there are, so a long draft slows a full server down. The command
    computes the best number of draft tokens K for each batch size from the measured times and acceptance rates. K is 0
    where drafting gives no speedup.

    Measure with --fixed-length: where draft lengths adapt, as on a CPU, the cost of a step with K draft tokens is not
    known. Batch sizes above the largest measured one are extrapolated, which the command prints.

    It prints vLLM's `num_speculative_tokens_per_batch_size` and, for prompt lookup on a CPU, `step_cost`. The latter
    replaces the costs that a server measures when it starts. Sampling costs more than greedy decoding, so let
    `mtpc bench` measure a temperature above 0 as well.

    With --out it writes a configuration that serves the measured target and drafter, or no drafter where none gives a
    speedup. With another --engine than the measured one it writes no `step_cost`. For SGLang on a GPU, it also writes
    FILE.steps.json with K by batch size; on a CPU, SGLang's draft length adapts in each step. Add the --server-arg of
    the benchmark to the configuration yourself.

    Examples:
    ```
    mtpc bench --target runs/smollm2 --drafter runs/fastmtp --fixed-length

    # Print the settings.
    mtpc plan runs/bench

    # Write a configuration, and serve with it.
    mtpc plan runs/bench --out runs/plan.yaml
    vllm serve --config runs/plan.yaml

    # Add prompt lookup.
    mtpc plan runs/bench --copy --out runs/copy.yaml

    # Write a configuration for SGLang.
    mtpc plan runs/bench --engine sglang --out runs/sglang.yaml
    ```
    """
    from mtpc.errors import MTPCError
    from mtpc.lab.bench import configuration
    from mtpc.lab.bench.plan import (
        best_drafts,
        extrapolation_note,
        measured_costs,
        predicted_speedup,
        read_results,
        results_file,
        schedule,
    )
    from mtpc.lab.table import Table

    if out is not None:
        configuration.check_writable(out, force)
    elif engine is not None or copy or force:
        given = next(name for name, value in (("--engine", engine), ("--copy", copy), ("--force", force)) if value)
        raise MTPCError(f"{given} requires --out FILE.yaml, the configuration to write.")
    file = results_file(results)
    terminal, timed = console(), read_results(file)
    served = None if out is None else configuration.read_measured_server(file)
    if served is not None:
        configuration.check_measured_server(served)
    found = measured_costs(timed)
    rows = []
    for point in timed:
        cost = found.cost.of(greedy=point.temperature == 0)
        best = best_drafts(cost, point.batch, point.rates)
        rows.append(
            [
                f"{point.temperature:g}",
                str(point.batch),
                f"{point.speedup:.2f}",
                f"{predicted_speedup(cost, point.batch, point.rates, len(point.rates)):.2f}",
                str(best),
                f"{predicted_speedup(cost, point.batch, point.rates, best):.2f}",
            ]
        )
    columns = ["T", "batch", "measured", "predicted", "best K", "predicted at best K"]
    terminal.print(Table(f"Speedup with K = {timed[0].tokens - 1} draft tokens", columns, rows).to_rich())
    terminal.print(f"A decoding step without draft tokens takes {1000 * found.seconds:.2f} ms at batch size 1.")
    greedy = min(timed, key=lambda point: point.temperature)
    ranges = schedule(found.cost, greedy.rates, max_batch)
    note = extrapolation_note(timed, max_batch)
    if note is not None:
        terminal.print(note, highlight=False)
    copying, own = configuration.copying_config(found.cost), engine or (served and served.engine)
    if own == "sglang":
        best_by_size = ", ".join(f"{drafts} for {first} to {last}" for first, last, drafts in ranges)
        terminal.print(f"Best K by batch size: {best_by_size}.", highlight=False)
    else:
        lengths = {"num_speculative_tokens_per_batch_size": ranges}
        for title, values in (("--speculative-config", lengths), ("--additional-config with prompt lookup", copying)):
            terminal.print(f"For vLLM's {title}:", highlight=False)
            terminal.out(json.dumps(values), highlight=False)
    if out is not None and served is not None:
        if engine not in (None, served.engine):
            other = f"All costs are those of {served.engine}: measure with `mtpc bench --engine {engine}` as well."
            terminal.print(other, highlight=False)
            served, copying = served._replace(engine=str(engine)), configuration.copying_config(None)
        settings = configuration.configuration(served, ranges, copying if copy else None)
        configuration.check_steps_writable(out, settings, force)
        configuration.write(out, served.engine, settings, note)
        if not configuration.has_drafter(settings):
            terminal.print("No K gives a speedup: the configuration has no drafter.", highlight=False)
        command = configuration.serve_command(served.engine, out, settings)
        terminal.out(f"written to {out}: {command}", highlight=False)
