"""Measures all points of a benchmark, its servers in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mtpc.errors import MTPCError
from mtpc.lab.bench.measure import Measurement, measure
from mtpc.lab.bench.results import Point
from mtpc.lab.bench.settings import BenchPlan
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server
from mtpc.lab.text.prompts import Prompt

WARM_UP_TOKENS = 32


def choose_prompts(prompts: Sequence[Prompt], plan: BenchPlan, batch_size: int) -> list[Prompt]:
    """Return the prompts of one measurement: whole batches, from the start of the file."""
    batches = max(2, -(-plan.requests // batch_size))
    return list(itertools.islice(itertools.cycle(prompts), batches * batch_size))


def run_plan(
    engine: Engine,
    servers: Mapping[str, Server],
    prompts: Sequence[Prompt],
    plan: BenchPlan,
    progress: Callable[[str, Measurement], None],
) -> list[Point]:
    """Measure every point, the servers in turn.

    Args:
        engine: The engine of all servers.
        servers: Servers by name: without a drafter, with the benchmarked drafter, then any others.
        prompts: Prompts.  Text is completed to the full length; the outputs of a chat end where the model ends them.
        plan: What is measured.
        progress: Called with a description and the figures after each measurement.

    Returns:
        The points, ordered by temperature and batch size as in the plan.

    Raises:
        MTPCError: A server breaks off, or the second one was not started here and has no drafter.
    """
    models = {name: server.model() for name, server in servers.items()}
    full_length = all(isinstance(prompt, str) for prompt in prompts)
    points = []
    for temperature, batch_size in itertools.product(plan.temperatures, plan.batch_sizes):
        chosen = choose_prompts(prompts, plan, batch_size)
        sampling = CompletionParams(plan.max_tokens, temperature, full_length)
        measured: dict[str, tuple[Measurement, ...]] = dict.fromkeys(servers, ())
        for _ in range(plan.rounds):
            for name, server in servers.items():
                warm_up = replace(sampling, max_tokens=min(WARM_UP_TOKENS, plan.max_tokens))
                engine.load(server.url, models[name], chosen[:batch_size], warm_up, batch_size)
                server.clear_history()
                measurement = measure(engine, server, models[name], chosen, sampling, batch_size)
                measured[name] += (measurement,)
                progress(f"temperature {temperature:g}, batch {batch_size}, {name}", measurement)
        (_, without), (drafter, drafted), *others = measured.items()
        other_points = {name: Point(batch_size, temperature, without, found) for name, found in others}
        point = Point(batch_size, temperature, without, drafted, other_points)
        # A drafter may have found no draft worth its time.
        if not point.drafts.drafts and not (servers[drafter].command or engine.has_drafter(servers[drafter].url)):
            raise MTPCError(
                f"{servers[drafter].url} serves without a drafter, or --engine is not its engine. "
                "Start it with a drafter, or give its --engine."
            )
        points.append(point)
    return points
