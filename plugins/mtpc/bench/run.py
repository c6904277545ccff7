"""All points of a benchmark, measured on two servers in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mtpc.bench.measure import Measurement, measure
from mtpc.bench.results import Point
from mtpc.errors import MTPCError
from mtpc.prompts import Prompt
from mtpc.servers.engine import Engine
from mtpc.servers.load import Sampling
from mtpc.servers.server import Pair

WARM_UP_TOKENS = 32


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    batch_sizes: tuple[int, ...]
    temperatures: tuple[float, ...]
    max_tokens: int
    rounds: int = 2  # pairs of measurements of each point; neighbours in time, so that machine drift cancels
    requests: int = 8  # at least so many requests in each measurement, and at least two for each slot of the batch

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise MTPCError(f"batch sizes must be positive, not {', '.join(map(str, self.batch_sizes)) or 'none'}.")
        if not self.temperatures or min(self.temperatures) < 0:
            raise MTPCError(
                f"temperatures must not be negative, but are {', '.join(map(str, self.temperatures)) or 'none'}."
            )
        for name in ("max_tokens", "rounds", "requests"):
            if getattr(self, name) < 1:
                raise MTPCError(f"{name} must be at least 1, not {getattr(self, name)}.")

    @property
    def measurements(self) -> int:
        """Measurements of the whole plan."""
        return 2 * self.rounds * len(self.batch_sizes) * len(self.temperatures)


def choose_prompts(prompts: Sequence[Prompt], plan: Plan, batch_size: int) -> list[Prompt]:
    """The prompts of one measurement: as many as the plan asks for, in whole batches, from the start of the file."""
    batches = max(2, -(-plan.requests // batch_size))
    return list(itertools.islice(itertools.cycle(prompts), batches * batch_size))


def run_plan(
    engine: Engine,
    servers: Pair,
    prompts: Sequence[Prompt],
    plan: Plan,
    progress: Callable[[str, Measurement], None],
) -> list[Point]:
    """Measure every point, the two servers in turn; ``progress`` is told of each measurement.

    Text is completed to the plan's full length; the answers to a chat end where the model ends them.

    Errors: `MTPCError` when a server breaks off, or when the second one counts no draft.
    """
    models = {server.url: server.model() for server in servers}
    full_length = all(isinstance(prompt, str) for prompt in prompts)
    points = []
    for temperature, batch_size in itertools.product(plan.temperatures, plan.batch_sizes):
        chosen = choose_prompts(prompts, plan, batch_size)
        sampling = Sampling(plan.max_tokens, temperature, full_length)
        measurements: dict[str, list[Measurement]] = {server.url: [] for server in servers}
        for _ in range(plan.rounds):
            for name, server in zip(("without", "with"), servers, strict=True):
                model = models[server.url]
                warm_up = replace(sampling, max_tokens=min(WARM_UP_TOKENS, plan.max_tokens))
                engine.load(server.url, model, chosen[:batch_size], warm_up, batch_size)
                measurement = measure(engine, server, model, chosen, sampling, batch_size)
                measurements[server.url].append(measurement)
                progress(f"temperature {temperature:g}, batch {batch_size}, {name}", measurement)
        point = Point(batch_size, temperature, *(tuple(measurements[server.url]) for server in servers))
        if not point.drafts.drafts:
            raise MTPCError(f"{servers.with_drafter.url} counted no draft: it does not serve with a drafter.")
        points.append(point)
    return points
