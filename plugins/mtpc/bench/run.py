"""All points of a benchmark, measured on two servers in turn."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtpc.bench.engine import Engine
from mtpc.bench.load import Prompt, Sampling
from mtpc.bench.measure import Measurement, measure
from mtpc.bench.results import Point
from mtpc.bench.server import Pair
from mtpc.errors import MTPCError

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


def read_prompts(file: Path, target: Path | None = None) -> list[Prompt]:
    """The prompts of a JSON Lines file: the field "text" of each line, or "user" of each line, what a user says.

    Text is completed as it is. What a user says becomes token ids, in the chat template of ``target``, a model folder.

    Errors: `MTPCError` for a file or a line that cannot be read, or no target whose chat template could be used.
    """
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise MTPCError(f"the prompts {file} cannot be read: {error}.") from None
    if not lines:
        raise MTPCError(f"{file} holds no prompt.")
    found: dict[str, list[str]] = {"text": [], "user": []}
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            field = "user" if "user" in values else "text"
            found[field].append(str(values[field]))
        except (ValueError, KeyError, TypeError):
            raise MTPCError(f'{file}, line {number}: expected a JSON object with the field "text" or "user".') from None
    if not found["user"]:
        return [*found["text"]]
    if found["text"]:
        raise MTPCError(f'{file} holds lines with "text" and lines with "user", but all must be of one kind.')
    if target is None:
        raise MTPCError(f'{file} holds what users say (the field "user"), which needs the chat template of --target.')
    from mtpc.distill.template import ChatTemplate

    template = ChatTemplate(target)
    return [template.question(user) for user in found["user"]]


def prompt_length(prompt: Prompt) -> int:
    """Tokens of a prompt, at most: no tokenizer turns a text into more of them than its bytes and one."""
    return len(prompt.encode()) + 1 if isinstance(prompt, str) else len(prompt)


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
        found: dict[str, list[Measurement]] = {server.url: [] for server in servers}
        for _ in range(plan.rounds):
            for name, server in zip(("without", "with"), servers, strict=True):
                model = models[server.url]
                warm_up = replace(sampling, max_tokens=min(WARM_UP_TOKENS, plan.max_tokens))
                engine.load(server.url, model, chosen[:batch_size], warm_up, batch_size)
                measurement = measure(engine, server, model, chosen, sampling, batch_size)
                found[server.url].append(measurement)
                progress(f"temperature {temperature:g}, batch {batch_size}, {name}", measurement)
        point = Point(batch_size, temperature, *(tuple(found[server.url]) for server in servers))
        if not point.drafts.drafts:
            raise MTPCError(f"{servers.with_drafter.url} counted no draft: it does not serve with a drafter.")
        points.append(point)
    return points
