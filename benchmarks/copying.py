r"""Tokens/s by prompt category: no drafter, the engine's n-gram drafter, a drafter, prompt lookup, and the hybrid.

    mtpc train copying --target runs/smollm2 --out runs/smollm2-copying
    python -m benchmarks.copying --target runs/smollm2 --drafter weights/smollm2-fastmtp --alone runs/smollm2-copying \
        --prompts questions.jsonl --temperatures 0 0.8 --batch-sizes 1 4 --out runs/copying

The hybrid is the drafter with prompt lookup.  It is measured twice: with drafts of the drafter's own length K ("hybrid,
K = N"), and with adaptive draft lengths ("hybrid, adaptive").  Adaptive lengths are chosen by ``--step-cost``; without
it the server measures step costs when it starts.

All servers run at once, each in its own process, and complete every prompt in turn, so that changes of the machine's
speed affect all of them alike.  With several rounds, every other round has the reverse order of servers.  The median
round of each prompt, or batch of prompts, counts.

Above concurrency 1, a completed request is replaced by the next prompt, and each batch has four prompts per concurrent
request.  Outputs then vary from half of ``--max-tokens`` to all of it, by the same pattern for every server, so that
requests do not end together.  If a category has fewer prompts than concurrent requests, all categories are measured
together.

"relative to the best baseline" is the speed of the adaptive hybrid over the best of no drafter, drafter and prompt
lookup.  "host overhead" is the share of its time that prompt lookup and the choice of draft lengths take.  results.json
and results.md are written after each category.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, cycle, islice, product
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.in_turn import in_order, in_turn
from benchmarks.questions import prompts_of_files
from mtpc.draft_length.cost import StepCost
from mtpc.files import provenance
from mtpc.files.config_model import validated_json
from mtpc.lab.bench.configuration import token_map
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.report import speed_cell
from mtpc.lab.bench.results import DRAFTER, NO_DRAFTER, measurement_to_json, rate, tokens_per_step
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.server import Server, side_by_side
from mtpc.lab.servers.speculation import resolve_num_drafts
from mtpc.lab.table import Table

ALL = "all"
QUEUE = 4  # prompts per concurrent request in one measurement, above batch size 1
PROMPT_LOOKUP, HYBRID = "prompt lookup", "hybrid, adaptive"


class Found(NamedTuple):
    """The measurements of one server.

    Attributes:
        by_kind: For each prompt category and each prompt, or batch of prompts: one measurement per round.
    """

    by_kind: dict[str, list[list[Measurement]]]

    def rounds(self, kind: str) -> list[list[Measurement]]:
        """Return the rounds of each prompt, or batch of prompts, of a category or of `ALL`."""
        return [rounds for name, found in self.by_kind.items() if kind in (name, ALL) for rounds in found]

    def of(self, kind: str) -> list[Measurement]:
        """Return all measurements of a category or of `ALL`."""
        return list(chain(*self.rounds(kind)))

    def speed(self, kind: str) -> float:
        """Return tokens/s of a category or of `ALL`: all tokens over all seconds of the median rounds."""
        return rate(list(chain(*map(median_rounds, self.rounds(kind)))))

    def host_overhead(self, kind: str) -> float:
        """Return the share of the time that prompt lookup and the choice of draft lengths take."""
        overhead = sum(one.part_seconds.get("lengths", 0.0) * one.draft_calls for one in self.of(kind))
        return overhead / sum(one.seconds for one in self.of(kind))


def median_rounds(rounds: Sequence[Measurement]) -> list[Measurement]:
    """Return the round of the median speed, or both middle rounds of an even number."""
    by_speed = sorted(rounds, key=lambda one: one.tokens_per_second)
    return by_speed[(len(rounds) - 1) // 2 : len(rounds) // 2 + 1]


def copying_arguments(engine: str, cost: Any, adaptive: bool = True) -> list[str]:
    """Return the arguments of an engine that switch prompt lookup on.

    Args:
        engine: vllm or sglang.
        cost: The setting ``step_cost``; None to let the server measure step costs when it starts.
        adaptive: Whether draft lengths adapt; otherwise every draft has the drafter's own length.
    """
    if engine == "vllm":
        settings = {"copy": True} | ({"step_cost": cost} if cost is not None else {})
        return ["--additional-config", json.dumps({"mtpc": settings | ({} if adaptive else {"adaptive": False})})]
    whole = "" if adaptive else "&adaptive=false"
    return ["--speculative-token-map", token_map(cost) + whole, "--disable-overlap-schedule"]


def contestants(given: argparse.Namespace, longest_prompt: int) -> dict[str, ServerSettings]:
    """Return the settings of all servers by name, in the order of the table's columns.

    Args:
        given: The command line.
        longest_prompt: Tokens of the longest prompt.

    Raises:
        MTPCError: A setting is wrong.
    """
    own = resolve_num_drafts(given.drafter, None)
    ngrams = {f"n-gram {setting}": Ngram.parse(setting) for setting in given.ngram}
    most = max(own, given.copied_drafts, *(ngram.drafts for ngram in ngrams.values()))
    length = longest_prompt + given.max_tokens + 1 + most
    plain = ServerSettings(given.target, max(given.batch_sizes), length, extra=tuple(given.server_arg))
    drafted = replace(plain, drafter=given.drafter, num_drafts=own)
    cost: Any = None
    if given.step_cost is not None:
        stated = validated_json(StepCost, given.step_cost.encode(), "--step-cost is wrong")
        cost = stated.model_dump(exclude_unset=True)
    fixed = replace(drafted, extra=(*plain.extra, *copying_arguments(given.engine, None, adaptive=False)))
    adaptive = replace(drafted, extra=(*plain.extra, *copying_arguments(given.engine, cost)))
    adaptive = replace(adaptive, num_drafts=max(own, given.copied_drafts))
    return {
        NO_DRAFTER: plain,
        **{name: replace(plain, ngram=ngram) for name, ngram in ngrams.items()},
        **({DRAFTER: drafted} if "drafter" in given.include else {}),
        **({} if given.alone is None else {PROMPT_LOOKUP: replace(adaptive, drafter=given.alone)}),
        **({f"hybrid, K = {own}": fixed} if "fixed-length" in given.include else {}),
        HYBRID: adaptive,
    }


class Point(NamedTuple):
    """The measurements at one temperature and concurrency.

    Attributes:
        temperature: Sampling temperature.
        batch_size: Number of concurrent requests.
        found: The measurements of each server by its name.
    """

    temperature: float
    batch_size: int
    found: dict[str, Found]

    def relative_to_baselines(self, kind: str) -> float:
        """Return the speed of the adaptive hybrid over the best of no drafter, drafter and prompt lookup."""
        return self.found[HYBRID].speed(kind) / max(
            self.found[name].speed(kind) for name in (DRAFTER, PROMPT_LOOKUP, NO_DRAFTER) if name in self.found
        )

    def table(self) -> Table:
        """Return a table with one row for each prompt category and one column for each server."""
        (plain, *drafted), rows = self.found.values(), []
        for kind in [*plain.by_kind, ALL]:
            cells = [f"{plain.speed(kind):.1f}"]
            for one in drafted:
                speed = one.speed(kind)
                cells.append(speed_cell(speed, speed / plain.speed(kind), tokens_per_step(one.of(kind))))
            share = f"{100 * self.found[HYBRID].host_overhead(kind):.1f}%"
            rows.append([kind, *cells, f"{self.relative_to_baselines(kind):.2f}", share])
        columns = ["category", *self.found, "relative to the best baseline", "host overhead"]
        where = f"T = {self.temperature:g}, concurrency {self.batch_size}"
        return Table(f"Tokens/s (speedup, acceptance length), {where}", columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Return the figures for results.json."""
        plain = self.found[NO_DRAFTER]
        found = {
            name: {
                "speedup": one.speed(ALL) / plain.speed(ALL),
                "host_overhead": one.host_overhead(ALL),
                "tokens_per_step": tokens_per_step(one.of(ALL)),
                "by_kind": {
                    kind: [list(map(measurement_to_json, rounds)) for rounds in each]
                    for kind, each in one.by_kind.items()
                },
                "same_text": sum(a.texts == b.texts for a, b in zip(one.of(ALL), plain.of(ALL), strict=True)),
            }
            for name, one in self.found.items()
        }
        return {"temperature": self.temperature, "batch_size": self.batch_size, "found": found}


class Benchmark:
    """One run of the benchmark, with the results so far."""

    def __init__(self, given: argparse.Namespace, engine: Engine, console: Console) -> None:
        self.given, self.engine, self.console = given, engine, console
        prompts = prompts_of_files(given.prompts, given.target, given.questions)
        self.asked, self.ignore_eos = prompts.by_kind, not prompts.stop_at_end
        longest = max(len(prompt) for of_kind in self.asked.values() for prompt in of_kind)
        self.settings = {
            name: engine.as_released(one, given.temperatures) for name, one in contestants(given, longest).items()
        }
        self.points: list[Point] = []

    def run(self) -> None:
        """Start all servers and measure them at each temperature and concurrency."""
        with side_by_side(self.engine, self.settings, self.given.out) as servers:
            for temperature, batch_size in product(self.given.temperatures, self.given.batch_sizes):
                possible = {
                    name: servers[name]
                    for name, settings in self.settings.items()
                    if settings.ngram is None or self.engine.ngram_obstacle(settings.ngram, [temperature]) is None
                }
                point = Point(temperature, batch_size, {name: Found({}) for name in possible})
                self.points.append(point)
                self._run_point(point, possible)
                self.console.print(point.table().to_rich())

    def _run_point(self, point: Point, servers: Mapping[str, Server]) -> None:
        of_many = point.batch_size > 1
        sampling = CompletionParams(
            self.given.max_tokens, point.temperature, ignore_eos=self.ignore_eos, spread=of_many
        )
        together = any(len(prompts) < point.batch_size for prompts in self.asked.values())
        asked = {"together": list(chain(*self.asked.values()))} if together else self.asked
        queue = QUEUE if of_many else 1
        for kind, prompts in asked.items():
            batches = ceil(len(prompts) / (point.batch_size * queue))
            filled = list(islice(cycle(prompts), batches * point.batch_size * queue))
            for each in point.found.values():
                each.by_kind[kind] = [[] for _ in range(batches)]
            for number in range(self.given.rounds):
                turns = in_turn(self.engine, in_order(servers, number), filled, point.batch_size, sampling, queue)
                for batch, found in enumerate(turns):
                    for name, measurement in found.items():
                        point.found[name].by_kind[kind][batch].append(measurement)
            speeds = ", ".join(f"{name} {found.speed(kind):.1f}" for name, found in point.found.items())
            self.console.print(f"{kind}: {speeds} tokens/s", highlight=False)
            self.write()

    def write(self) -> None:
        """Write results.json and results.md."""
        facts = provenance.collect()
        questions = {kind: len(prompts) for kind, prompts in self.asked.items()}
        results = {
            "provenance": facts,
            "settings": vars(self.given),
            "servers": {name: asdict(settings) for name, settings in self.settings.items()},
            "questions": questions,
            "points": [point.to_json() for point in self.points],
        }
        (self.given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
        made = f"Prompts: {', '.join(f'{number} {kind}' for kind, number in questions.items())}; at most "
        made += f"{self.given.max_tokens} tokens per output; rounds: {self.given.rounds}. "
        made += f"Command: `{facts['command']}`."
        tables = "\n".join(point.table().to_markdown() for point in self.points)
        (self.given.out / "results.md").write_text(f"{tables}\n{made}\n")


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--drafter", type=Path, required=True, help="drafter checkpoint")
    add("--alone", type=Path, help="measure prompt lookup alone with this checkpoint of `mtpc train copying`")
    engine = "engine; vllm runs offline, without its HTTP server (default: %(default)s)"
    add("--engine", choices=("vllm", "sglang"), default="vllm", help=engine)
    add("--prompts", type=Path, required=True, nargs="+", help="JSON Lines files, as for `mtpc bench`")
    add("--questions", type=int, default=6, help="limit the prompts of each category (default: %(default)s)")
    add("--rounds", type=int, default=1, help="measure each prompt this often (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="limit the tokens of an output (default: %(default)s)")
    add("--temperatures", type=float, nargs="+", default=[0.0], help="sampling temperatures; 0 is greedy (default: 0)")
    add("--batch-sizes", type=int, nargs="+", default=[1], help="numbers of concurrent requests (default: 1)")
    include = "also measure the drafter alone, and the hybrid with fixed draft lengths (default: both)"
    add("--include", nargs="*", choices=("drafter", "fixed-length"), default=["drafter", "fixed-length"], help=include)
    ngram = "also measure the engine's n-gram drafter: tokens to match, and K, such as 2-4:5"
    add("--ngram", action="append", default=[], metavar="MIN-MAX:K", help=ngram)
    copied = "limit the draft tokens with adaptive lengths; never below the drafter's K (default: %(default)s)"
    add("--copied-drafts", type=int, default=10, help=copied)
    add("--step-cost", metavar="JSON", help="choose draft lengths by these step costs, as printed by `mtpc plan`")
    shared = "pass this argument to all servers, such as --server-arg=--dtype=float32; may be repeated"
    add("--server-arg", action="append", default=[], help=shared)
    add("--out", type=Path, default=Path("runs/copying"), help="write results to this folder (default: %(default)s)")
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, print the tables and write the results."""
    console, arguments = Console(), read_arguments(given)
    engine = find_engine(arguments.engine, offline=arguments.engine == "vllm")
    must_be_installed(engine)
    Benchmark(arguments, engine, console).run()
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
