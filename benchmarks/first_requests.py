r"""Tokens/s by concurrency from a server's first requests on, without a drafter and with several drafters.

    python -m benchmarks.first_requests --engine vllm --target runs/smollm2 --prompts spec_bench.jsonl --ngram 2-4:4 \
        --drafter fastmtp=weights/smollm2-fastmtp --drafter both=weights/smollm2-fastmtp --drafts both=10 \
        --drafter-arg both=--no-async-scheduling --drafter-arg both=--additional-config \
        --drafter-arg 'both={"mtpc": {"copy": true}}' --out runs/first-requests

All servers run at once and complete the same prompts in turn, so that changes of the machine's speed affect all of them
alike.  There is no warm-up: the first prompts of a start are the first requests of its servers.  All servers start
--starts times, and each start begins with another concurrency.  Prompts are spread over the files.  The tables show
medians over the starts.  results.json and results.md are written after each concurrency.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console

from benchmarks.arguments import listed, one_sentence
from benchmarks.in_turn import in_order
from benchmarks.speed_contestants import add_arguments, contestants
from mtpc.files import provenance
from mtpc.lab.bench.measure import Measurement, measure
from mtpc.lab.bench.report import speed_cell
from mtpc.lab.bench.results import measurement_to_json, rate, tokens_per_step
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server, side_by_side
from mtpc.lab.table import Table
from mtpc.lab.text.prompts import Prompt, prompt_length, read_prompts

TURN = 8  # prompts per concurrent request before the next server's turn


class Point(NamedTuple):
    """The measurements of one server at one start, temperature and concurrency.

    Attributes:
        start: Number of the start, from 0 on.
        temperature: Sampling temperature.
        concurrency: Number of concurrent requests.
        name: Name of the server.
        turns: One measurement for each turn.
    """

    start: int
    temperature: float
    concurrency: int
    name: str
    turns: list[Measurement]


class Benchmark:
    """One run of the benchmark, with the results so far."""

    def __init__(self, given: argparse.Namespace, engine: Engine, console: Console) -> None:
        self.given, self.engine, self.console = given, engine, console
        prompts = [prompt for file in given.prompts for prompt, _ in read_prompts(file, given.target)]
        count = min(given.questions, len(prompts))
        self.prompts: list[Prompt] = [prompts[number * len(prompts) // count] for number in range(count)]
        longest = max(map(prompt_length, self.prompts))
        given.batch_size = max(given.concurrency)
        self.contestants = list(contestants(given, engine, longest))
        self.points: list[Point] = []

    def run(self) -> None:
        """Start all servers --starts times, and measure each of them on all prompts at each concurrency."""
        settings = {one.name: self.engine.as_released(one.settings, one.temperatures) for one in self.contestants}
        concurrencies = self.given.concurrency
        for start in range(self.given.starts):
            with side_by_side(self.engine, settings, self.given.out) as servers:
                for concurrency in concurrencies[start:] + concurrencies[:start]:
                    for temperature in self.given.temperatures:
                        self._ask(start, temperature, concurrency, servers)

    def _ask(self, start: int, temperature: float, concurrency: int, servers: dict[str, Server]) -> None:
        possible = {one.name: servers[one.name] for one in self.contestants if temperature in one.temperatures}
        sampling = CompletionParams(self.given.max_tokens, temperature)
        points = {name: Point(start, temperature, concurrency, name, []) for name in possible}
        for number, prompts in enumerate(self._turns(concurrency)):
            for name, server in in_order(possible, number).items():
                server.clear_history()
                done = measure(self.engine, server, server.model(), prompts, sampling, concurrency)
                points[name].turns.append(done)
        self.points += points.values()
        speeds = ", ".join(f"{name} {rate(point.turns):.1f}" for name, point in points.items())
        self.console.print(
            f"start {start + 1}, T = {temperature:g}, concurrency {concurrency}: {speeds} tokens/s", highlight=False
        )
        self.write()

    def _turns(self, concurrency: int) -> Iterator[list[Prompt]]:
        """Yield the prompts of each turn: at least `TURN` per concurrent request, if there are as many."""
        turns = max(1, len(self.prompts) // (TURN * concurrency))
        bounds = [number * len(self.prompts) // turns for number in range(turns + 1)]
        for begin, end in pairwise(bounds):
            yield self.prompts[begin:end]

    def table(self, temperature: float) -> Table:
        """Return a table with one row for each server: tokens/s, speedup over no drafter and acceptance length."""
        rows = []
        at = {(p.concurrency, p.name, p.start): p for p in self.points if p.temperature == temperature}
        measured = [each for each in self.given.concurrency if any(each == key[0] for key in at)]
        for one in self.contestants:
            if temperature not in one.temperatures:
                continue
            cells = []
            for concurrency in measured:
                starts = [start for each, name, start in at if (each, name) == (concurrency, one.name)]
                own = [at[concurrency, one.name, start] for start in starts]
                plain = [at[concurrency, self.contestants[0].name, start] for start in starts]
                speeds = [rate(point.turns) for point in own]
                gains = [speed / rate(point.turns) for speed, point in zip(speeds, plain, strict=True)]
                length = tokens_per_step([turn for point in own for turn in point.turns])
                each = " ".join(f"{gain:.2f}" for gain in gains)
                cells.append(f"{speed_cell(median(speeds), median(gains), length)} [{each}]")
            rows.append([one.name, *cells])
        title = f"Tokens/s (speedup, acceptance length) [speedup of each start], T = {temperature:g}"
        return Table(title, ["drafter", *(f"concurrency {each}" for each in measured)], rows)

    def write(self) -> None:
        """Write results.json and results.md."""
        facts = provenance.collect()
        points = [{**point._asdict(), "turns": list(map(measurement_to_json, point.turns))} for point in self.points]
        results = {"provenance": facts, "settings": vars(self.given), "points": points}
        (self.given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
        made = f"{self.engine.title}; {len(self.prompts)} prompts, {self.given.max_tokens} tokens per output. "
        tables = [self.table(temperature).to_markdown() for temperature in self.given.temperatures]
        (self.given.out / "results.md").write_text("\n".join([*tables, f"{made}Command: `{facts['command']}`."]) + "\n")


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    add("--prompts", type=Path, required=True, nargs="+", help="JSON Lines files, as for `mtpc bench`")
    add("--questions", type=int, default=60, help="use this many prompts, spread over the files (default: %(default)s)")
    add("--max-tokens", type=int, default=48, help="generate this many tokens per prompt (default: %(default)s)")
    temperatures = "sampling temperatures, comma-separated; 0 is greedy (default: %(default)s)"
    add("--temperatures", type=listed(float), default="0", help=temperatures)
    concurrency = "numbers of concurrent requests, comma-separated (default: %(default)s)"
    add("--concurrency", type=listed(int), default="1,4,8,16", help=concurrency)
    add("--starts", type=int, default=3, help="start all servers this often (default: %(default)s)")
    out = "write results to this folder (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/first-requests"), help=out)
    parser.set_defaults(trees=[], borrow=[], max_children=None)
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, write the results and print the tables."""
    console, arguments = Console(width=200), read_arguments(given)
    engine = find_engine(arguments.engine)
    must_be_installed(engine)
    benchmark = Benchmark(arguments, engine, console)
    benchmark.run()
    for temperature in arguments.temperatures:
        console.print(benchmark.table(temperature).to_rich())
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
