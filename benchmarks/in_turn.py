"""Questions to several servers in turn, so that a machine whose speed drifts slows them alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mtpc.lab.bench.measure import Measurement, measure
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server
from mtpc.lab.text.prompts import Prompt

WARM_UP = 32  # tokens


def in_order(servers: Mapping[str, Server], number: int) -> dict[str, Server]:
    """Servers in the order of a round: in every other one the last is asked first."""
    return dict(list(servers.items())[:: -1 if number % 2 else 1])


def in_turn(
    engine: Engine,
    servers: Mapping[str, Server],
    prompts: Sequence[Prompt],
    batch_size: int,
    sampling: CompletionParams,
    queue: int = 1,
) -> Iterator[dict[str, Measurement]]:
    """Of each question, or batch of questions, what every server made of it, by name; each is warmed up before.

    queue: how many batches are asked together: each question that is answered then makes room for another one.
    """
    short, together = replace(sampling, max_tokens=WARM_UP), batch_size * queue
    for start in range(0, len(prompts), together):
        batch, found = prompts[start : start + together], {}
        for name, server in servers.items():
            model = server.model()
            engine.load(server.url, model, batch[:1], short, 1)
            server.clear_history()
            found[name] = measure(engine, server, model, batch, sampling, min(batch_size, len(batch)))
        yield found
