"""`make demo` and `make demo-sglang`: the same server without and with a drafter, side by side in the terminal.

Starts both, streams a few completions from the one with the drafter, then measures both in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.rule import Rule

from mtpc.bench import report
from mtpc.bench.engine import Engine, ServerSettings
from mtpc.bench.engines import find_engine
from mtpc.bench.load import Sampling, events
from mtpc.bench.run import Plan, read_prompts, run_plan
from mtpc.bench.server import Server, two_servers
from mtpc.drafter import read_config
from mtpc.errors import MTPCError

SHOWN = (
    ("prose, greedy", "And it came to pass, when the king heard these words,", 0.0),
    ("prose, temperature 0.8", "HAMLET. ", 0.8),
    ("code, greedy", "class Counter:\n    def __init__(self, values):\n", 0.0),
)
SHOWN_TOKENS = 200
MAX_LENGTH = 1024
PLAN = Plan(batch_sizes=(1,), temperatures=(0.0, 1.0), max_tokens=256, rounds=2, requests=4)
PROMPTS = Path(__file__).parent.parent / "benchmarks" / "prompts.jsonl"


async def stream(server: Server, model: str, prompt: str, temperature: float, console: Console) -> None:
    """Print one completion as it comes."""
    body = Sampling(SHOWN_TOKENS, temperature).body(model, prompt)
    console.print(prompt, style="dim", end="", markup=False, highlight=False)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/completions", json=body) as reply,
    ):
        async for line in reply.content:
            event = events(line)
            if event and event.get("choices"):
                console.print(event["choices"][0]["text"], end="", markup=False, highlight=False)
    console.print()


def demonstrate(engine: Engine, target: Path, drafter: Path, console: Console) -> None:
    """Start, show, measure.

    Errors: `MTPCError` for a folder that is wrong or a server that does not start.
    """
    if not (target / "config.json").is_file():
        raise MTPCError(f"{target} is not a model folder: it has no config.json.")
    num_drafts = read_config(drafter).window - 1
    plain = ServerSettings(target, 1, MAX_LENGTH)
    drafted = ServerSettings(target, 1, MAX_LENGTH, drafter, num_drafts)
    prompts = read_prompts(PROMPTS)
    with tempfile.TemporaryDirectory(prefix="mtpc-demo-") as folder:
        console.print(f"Starting {engine.title} twice on {target}: without a drafter, and with {drafter} ...")
        with two_servers(engine, plain, drafted, Path(folder)) as servers:
            for title, prompt, temperature in SHOWN:
                console.print(Rule(f"{title}, streamed from the server with the drafter", align="left"))
                asyncio.run(stream(servers.with_drafter, servers.with_drafter.model(), prompt, temperature, console))
            console.print(Rule(f"{PLAN.measurements} measurements, without and with in turn", align="left"))
            points = run_plan(engine, servers, prompts, PLAN, lambda name, _: console.print(name, highlight=False))
    report.show(points, console)
    console.print("Speed-up = tokens/s with / without, one request at a time.  `mtpc bench` measures more batch sizes.")


def main() -> int:
    """Exit code 2 with one sentence when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        demonstrate(find_engine(arguments.engine), arguments.target, arguments.drafter, Console())
    except MTPCError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
