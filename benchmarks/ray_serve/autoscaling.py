"""Replicas that come and go with the load: serve_configs/ray/byte.yaml with autoscaling, on this machine.

Clients ask the one replica that there is until Serve has started another one, go on for a while, and leave; then all
but one are stopped. It tells how long each of these took, counts every answer and compares every greedy text. The exit
code is 1 if a request was lost or a text wrong.
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

FULL = 0.75  # of the requests that an engine runs at a time: as many as a replica should have


def autoscaled(config: dict[str, Any], most: int, delay: float) -> dict[str, Any]:
    """Applications whose drafted model has 1 to ``most`` replicas, ``delay`` seconds after the load asks for them."""
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
    """Seconds from one event to the next, and what became of the requests."""

    async def until(number: int) -> float:
        started = time.monotonic()
        await asyncio.to_thread(served.until, partial(served.has, number, DRAFTED))
        return time.monotonic() - started

    events = {}
    async with clients:
        tally = clients.count_anew()
        console.print(f"{clients.number} clients ask one replica ...")
        events[f"until {most} replicas ran"] = await until(most)
        console.print(f"{most} replicas run; the clients go on for {seconds:.0f} s ...")
        await asyncio.sleep(seconds)
    console.print("the clients have left ...")
    events["until one ran alone"] = await until(1)
    return events, tally


@one_sentence
def main() -> None:
    """Serve, ask, wait, leave, wait."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_serve.autoscaling", description=__doc__)
    add_arguments(parser, Path("runs/autoscaling"))
    parser.add_argument("--replicas", type=int, default=2, help="at most")
    parser.add_argument("--delay", type=float, default=10, help="seconds for which the load must last")
    parser.add_argument("--seconds", type=float, default=30, help="under load with all replicas")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    config = autoscaled(read_config(arguments.config, arguments.models), arguments.replicas, arguments.delay)
    console.print(f"Starting Ray, and what {arguments.config} says, with 1 to {arguments.replicas} replicas ...")
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
