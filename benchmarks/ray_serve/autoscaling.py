"""Measure how fast Ray Serve scales replicas with a drafter up and down with the load, on this machine.

    python -m benchmarks.ray_serve.autoscaling

Clients send requests to one replica until Serve has started the others, and then for some more seconds. After the
clients have left, Serve stops all replicas but one. The command reports how long both changes took. All responses are
counted, and every greedy output is compared with that of the engine without a drafter. The exit code is 2 if a request
is lost or an output differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.ray_serve.clients import Clients, Tally, check
from benchmarks.ray_serve.cluster import Cluster, cluster, read_config
from benchmarks.ray_serve.load import DRAFTED, add_arguments, clients_of, drafted_model

FULL = 0.75  # target load of a replica, as a share of its largest batch


def autoscaled(config: dict[str, Any], most: int, delay: float) -> dict[str, Any]:
    """Let the drafted model scale from 1 to ``most`` replicas, ``delay`` seconds after the load has changed."""
    model = drafted_model(config)
    del model["deployment_config"]["num_replicas"]
    model["deployment_config"]["autoscaling_config"] = {
        "min_replicas": 1,
        "max_replicas": most,
        "target_ongoing_requests": FULL * model["engine_kwargs"]["max_num_seqs"],
        "upscale_delay_s": delay,
        "downscale_delay_s": delay,
    }
    return config


async def watch(
    served: Cluster, clients: Clients, most: int, seconds: float, console: Console
) -> tuple[dict[str, float], Tally]:
    """Scale up and down; return the seconds until both are done, and the counts of the requests."""

    async def until(number: int) -> float:
        started = time.monotonic()
        await asyncio.to_thread(served.until, partial(served.has, number, DRAFTED))
        return time.monotonic() - started

    events = {}
    async with clients:
        tally = clients.restart_counts()
        console.print(f"{clients.number} clients, one replica ...")
        events[f"until {most} replicas ran"] = await until(most)
        console.print(f"{most} replicas run; the clients continue for {seconds:.0f} s ...")
        await asyncio.sleep(seconds)
    console.print("the clients have left ...")
    events["until one replica was left"] = await until(1)
    return events, tally


@one_sentence
def main() -> None:
    """Deploy the applications, scale up and down, and print and check the results."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ray_serve.autoscaling", description=__doc__, formatter_class=shown
    )
    add_arguments(parser, Path("runs/autoscaling"))
    parser.add_argument("--replicas", type=int, default=2, help="limit the number of replicas (default: %(default)s)")
    delay = "scale after the load has lasted for this many seconds (default: %(default)s)"
    parser.add_argument("--delay", type=float, default=10, help=delay)
    seconds = "keep the load for this many seconds with all replicas (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=30, help=seconds)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    config = autoscaled(read_config(arguments.config, arguments.models), arguments.replicas, arguments.delay)
    console.print(f"Starting Ray with {arguments.config} and 1 to {arguments.replicas} replicas ...")
    with cluster(config) as served:
        served.deploy()
        served.until(served.all_running)
        clients = clients_of(served, arguments)
        events, tally = asyncio.run(watch(served, clients, arguments.replicas, arguments.seconds, console))
    result = {"seconds": {event: round(seconds, 1) for event, seconds in events.items()}, **tally.counts()}
    console.print_json(data=result)
    (arguments.out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    check([tally])


if __name__ == "__main__":
    sys.exit(main())
