"""All points of a benchmark, measured on its servers in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mtpc.errors import MTPCError
from mtpc.lab.bench.measure import Measurement, measure
from mtpc.lab.bench.results import Point
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server
from mtpc.lab.text.prompts import Prompt

WARM_UP_TOKENS = 32


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    batch_sizes: tuple[int, ...]
    temperatures: tuple[float, ...]
    max_tokens: int
    rounds: int = 2  # measurements of each server at each point; neighbours in time, so that machine drift cancels
    requests: int = 8  # at least so many requests in each measurement, and at least two for each slot of the batch

    def measurements(self, servers: int) -> int:
        """Measurements of the whole plan on so many servers."""
        return servers * self.rounds * len(self.batch_sizes) * len(self.temperatures)


def choose_prompts(prompts: Sequence[Prompt], plan: Plan, batch_size: int) -> list[Prompt]:
    """The prompts of one measurement: as many as the plan asks for, in whole batches, from the start of the file."""
    batches = max(2, -(-plan.requests // batch_size))
    return list(itertools.islice(itertools.cycle(prompts), batches * batch_size))


def run_plan(
    engine: Engine,
    servers: Mapping[str, Server],
    prompts: Sequence[Prompt],
    plan: Plan,
    progress: Callable[[str, Measurement], None],
) -> list[Point]:
    """Measure every point, the servers in turn; ``progress`` is told of each measurement.

    servers: by name; the first is without a drafter, the second with the drafter that it is about, and then may come
    others.  Text is completed to the plan's full length; the answers to a chat end where the model ends them.

    Errors: `MTPCError` when a server breaks off, or when the second one counts no draft.
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
        beside = {name: Point(batch_size, temperature, without, found) for name, found in others}
        point = Point(batch_size, temperature, without, drafted, beside)
        if not point.drafts.drafts:
            url = servers[drafter].url
            raise MTPCError(f"{url} counted no draft: it serves without a drafter, or is no server of --engine.")
        points.append(point)
    return points
