"""`make demo-ray`: applications of serve_configs/ray on this machine, under load.

Two replicas with the drafter answer many clients; one of them is killed, and another one comes; then the drafter's
directory is exchanged for a new one, replica by replica. Every answer is counted, every greedy text compared with what
the engine without a drafter says, which is served beside. The exit code is 1 if a request was lost or a text wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import one_sentence
from benchmarks.ray_serve.clients import TOKENS, Clients, Tally, check
from benchmarks.ray_serve.cluster import Cluster, Replica, cluster, read_config
from benchmarks.ray_serve.load import DRAFTED, PLAIN, add_arguments, clients_of, drafter_setting


class Phase(NamedTuple):
    """A stretch of time under load."""

    name: str
    tally: Tally
    tokens_per_second: float
    memory: dict[str, float]  # MB at its end, by replica

    def row(self) -> dict[str, Any]:
        """Its figures."""
        seconds = sorted(self.tally.seconds)
        half, most = (quantiles(seconds, n=20)[place] for place in (9, 18)) if len(seconds) > 1 else (0.0, 0.0)
        return {
            "phase": self.name,
            **self.tally.counts(),
            "tokens/s": round(self.tokens_per_second),
            "median s": round(half, 2),
            "95 % s": round(most, 2),
            "memory, MB": {name: round(size) for name, size in self.memory.items()},
        }


async def phase(name: str, served: Cluster, clients: Clients, seconds: float, ready: Callable[[], bool]) -> Phase:
    """Let the clients ask for so long, and on until ``ready``."""
    tally = clients.count_anew()
    await asyncio.sleep(seconds)
    await asyncio.to_thread(served.until, ready)
    replicas = await asyncio.to_thread(served.running, DRAFTED)
    return Phase(name, tally, tally.tokens_per_second, {replica.name: replica.memory for replica in replicas})


async def run(served: Cluster, clients: Clients, seconds: float, folder: Path, console: Console) -> list[Phase]:
    """All phases in turn."""
    first = served.running(DRAFTED)
    complete = partial(served.has, len(first), DRAFTED)
    phases = []
    async with clients:
        for name in ("warm-up", "steady"):
            console.print(f"{name}: {clients.number} clients ask {len(first)} replicas for {seconds:.0f} s ...")
            phases.append(await phase(name, served, clients, seconds, complete))
        victim = first[0]
        console.print(f"kill -9 {victim.process}: replica {victim.name} is gone; until there is another one ...")
        os.kill(victim.process, signal.SIGKILL)
        after = lambda: complete() and victim.name not in names_of(served.running(DRAFTED))  # noqa: E731
        phases.append(await phase("a replica is killed", served, clients, seconds, after))
        old = names_of(served.running(DRAFTED))
        console.print("the drafter's directory is exchanged, one replica after the other ...")
        exchange_drafter(served, folder)
        renewed = lambda: complete() and not old & names_of(served.replicas(DRAFTED))  # noqa: E731
        phases.append(await phase("a new drafter", served, clients, seconds, renewed))
    return phases


def names_of(replicas: list[Replica]) -> set[str]:
    """By which they are told apart."""
    return {replica.name for replica in replicas}


def exchange_drafter(served: Cluster, folder: Path) -> None:
    """Deploy the drafter out of another directory: a copy, so that texts can be compared."""
    settings, key = drafter_setting(served.config)
    new = folder / "new-drafter"
    shutil.copytree(settings[key], new, dirs_exist_ok=True)
    settings[key] = str(new.resolve())
    served.deploy()


def cell(figure: Any) -> str:
    """Of the table."""
    return "\n".join(f"{name}: {value}" for name, value in figure.items()) if isinstance(figure, dict) else str(figure)


def show(phases: list[Phase], console: Console) -> None:
    """A column for each phase."""
    rows = [one.row() for one in phases]
    table = Table(title=f"{TOKENS} tokens a request, a quarter of them sampled")
    for heading in ("", *(row["phase"] for row in rows)):
        table.add_column(heading, overflow="fold")
    for key in list(rows[0])[1:]:
        table.add_row(key, *(cell(row[key]) for row in rows))
    console.print(table)


@one_sentence
def main() -> None:
    """Serve, ask, kill, exchange, count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_serve", description=__doc__)
    add_arguments(parser, Path("runs/demo-ray"))
    parser.add_argument("--seconds", type=float, default=15, help="of each of the four phases, at least")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(f"Starting Ray, and what {arguments.config} says ...")
    with cluster(read_config(arguments.config, arguments.models)) as served:
        served.deploy()
        served.until(served.all_running)
        console.print(f"{PLAIN} answers {arguments.prompts} prompts by itself ...")
        clients = clients_of(served, arguments)
        phases = asyncio.run(run(served, clients, arguments.seconds, arguments.out, console))
    show(phases, console)
    (arguments.out / "results.json").write_text(json.dumps([one.row() for one in phases], indent=1) + "\n")
    check(one.tally for one in phases)
    console.print("Every request was answered, every greedy text is the one that the engine gives without a drafter.")


if __name__ == "__main__":
    sys.exit(main())
