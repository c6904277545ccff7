"""Check Ray Serve with a drafter under load on this machine: a replica is killed, and the drafter is exchanged.

    make demo-ray
    python -m benchmarks.ray_serve --config serve_configs/ray/byte.yaml --seconds 100

Two replicas with the drafter serve many clients. One replica is killed, and Serve starts another one. Then the drafter
checkpoint is exchanged, one replica after the other. All responses are counted. Every greedy output is compared with
that of the engine without a drafter, which is served at the same time. The exit code is 2 if a request is lost or an
output differs.
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
    """The results of one phase under load."""

    name: str
    tally: Tally
    tokens_per_second: float
    memory: dict[str, float]  # MB at its end, by replica

    def row(self) -> dict[str, Any]:
        """Return the figures of the phase by name."""
        seconds = sorted(self.tally.seconds)
        median, p95 = (quantiles(seconds, n=20)[index] for index in (9, 18)) if len(seconds) > 1 else (0.0, 0.0)
        return {
            "phase": self.name,
            **self.tally.counts(),
            "tokens/s": round(self.tokens_per_second),
            "median latency, s": round(median, 2),
            "p95 latency, s": round(p95, 2),
            "memory, MB": {name: round(size) for name, size in self.memory.items()},
        }


async def phase(name: str, served: Cluster, clients: Clients, seconds: float, ready: Callable[[], bool]) -> Phase:
    """Let the clients send requests for some seconds, and then until ``ready`` returns true."""
    tally = clients.restart_counts()
    await asyncio.sleep(seconds)
    await asyncio.to_thread(served.until, ready)
    replicas = await asyncio.to_thread(served.running, DRAFTED)
    return Phase(name, tally, tally.tokens_per_second, {replica.name: replica.memory for replica in replicas})


async def run(served: Cluster, clients: Clients, seconds: float, folder: Path, console: Console) -> list[Phase]:
    """Run all phases in turn."""
    first = served.running(DRAFTED)
    complete = partial(served.has, len(first), DRAFTED)
    phases = []
    async with clients:
        for name in ("warm-up", "steady"):
            console.print(f"{name}: {clients.number} clients, {len(first)} replicas, {seconds:.0f} s ...")
            phases.append(await phase(name, served, clients, seconds, complete))
        victim = first[0]
        console.print(f"kill -9 {victim.process}: waiting until replica {victim.name} is replaced ...")
        os.kill(victim.process, signal.SIGKILL)
        after = lambda: complete() and victim.name not in names_of(served.running(DRAFTED))  # noqa: E731
        phases.append(await phase("replica killed", served, clients, seconds, after))
        old = names_of(served.running(DRAFTED))
        console.print("exchanging the drafter checkpoint, one replica after the other ...")
        exchange_drafter(served, folder)
        renewed = lambda: complete() and not old & names_of(served.replicas(DRAFTED))  # noqa: E731
        phases.append(await phase("new drafter", served, clients, seconds, renewed))
    return phases


def names_of(replicas: list[Replica]) -> set[str]:
    """Return the names of replicas."""
    return {replica.name for replica in replicas}


def exchange_drafter(served: Cluster, folder: Path) -> None:
    """Deploy a copy of the drafter checkpoint in another folder; outputs stay comparable."""
    settings, key = drafter_setting(served.config)
    new = folder / "new-drafter"
    shutil.copytree(settings[key], new, dirs_exist_ok=True)
    settings[key] = str(new.resolve())
    served.deploy()


def cell(figure: Any) -> str:
    """Format a cell of the table."""
    return "\n".join(f"{name}: {value}" for name, value in figure.items()) if isinstance(figure, dict) else str(figure)


def show(phases: list[Phase], console: Console) -> None:
    """Print a table with a column for each phase."""
    rows = [one.row() for one in phases]
    table = Table(title=f"{TOKENS} tokens per request; a quarter of the requests is sampled")
    for heading in ("", *(row["phase"] for row in rows)):
        table.add_column(heading, overflow="fold")
    for key in list(rows[0])[1:]:
        table.add_row(key, *(cell(row[key]) for row in rows))
    console.print(table)


@one_sentence
def main() -> None:
    """Deploy the applications, run all phases, and print and check the results."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_serve", description=__doc__, formatter_class=shown)
    add_arguments(parser, Path("runs/demo-ray"))
    seconds = "run each of the four phases for at least this many seconds (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=15, help=seconds)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(f"Starting Ray with the applications of {arguments.config} ...")
    with cluster(read_config(arguments.config, arguments.models)) as served:
        served.deploy()
        served.until(served.all_running)
        console.print(f"{PLAIN} completes {arguments.prompts} prompts without other load ...")
        clients = clients_of(served, arguments)
        phases = asyncio.run(run(served, clients, arguments.seconds, arguments.out, console))
    show(phases, console)
    (arguments.out / "results.json").write_text(json.dumps([one.row() for one in phases], indent=1) + "\n")
    check(one.tally for one in phases)
    console.print("All requests were completed, and all greedy outputs equal those of the engine without a drafter.")


if __name__ == "__main__":
    sys.exit(main())
