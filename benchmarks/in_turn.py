"""Send prompts to several servers in turn, so that changes of the machine's speed affect all of them alike."""

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
    """Return the servers in the order of a round; every other round has the reverse order."""
    return dict(list(servers.items())[:: -1 if number % 2 else 1])


def in_turn(
    engine: Engine,
    servers: Mapping[str, Server],
    prompts: Sequence[Prompt],
    batch_size: int,
    sampling: CompletionParams,
    queue: int = 1,
) -> Iterator[dict[str, Measurement]]:
    """Yield the measurements of each batch of prompts by server name.

    Before each measurement the server completes one short prompt as a warm-up, and its history is cleared.

    Args:
        engine: The engine of all servers.
        servers: Servers by name, in the order in which they are measured.
        prompts: All prompts.
        batch_size: Number of concurrent requests.
        sampling: Parameters of the requests.
        queue: Prompts per concurrent request in one measurement; a completed request is replaced by the next one.
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
