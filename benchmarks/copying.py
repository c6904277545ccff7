r"""Tokens/s by kind of question, and who drafts: nobody, the engine's n-gram drafter, a drafter, copying, or both.

    mtpc train copying --target runs/smollm2 --out runs/smollm2-copying
    python -m benchmarks.copying --target runs/smollm2 --drafter weights/smollm2-fastmtp --alone runs/smollm2-copying \
        --prompts questions.jsonl --temperatures 0 0.8 --batch-sizes 1 4 --out runs/copying

All of them are there at once, each in a process, and answer every question in turn, so that a machine whose speed
drifts slows them alike.  With several rounds everything is asked again, the last one first in every other round; of a
question, or batch of questions, each contestant's middle round counts, as a machine that others use as well slows some.
results.json and results.md are written anew after each kind.  Questions: as `mtpc bench --prompts`, Spec-Bench's own
too.  Where more requests are there at a time than a kind has questions, the questions of all kinds are asked together.
Of several requests at a time each that is answered makes room for another one, four times over: in a batch that
nothing follows, its slowest request alone decides.  Their answers are half of ``--max-tokens`` to all of it long, the
same for every contestant: equally long ones would all end at once where nobody drafts, and the prompts after them be
read together.  Both are measured twice: with drafts of the drafter's own length, all of which are verified, and with
drafts as long as pays by ``--step-cost``; of the latter the last column tells what part of its time goes into finding
copies and choosing lengths.
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
QUEUE = 4  # questions for each of several requests at a time
ALONE, OF_ONE_LENGTH, BOTH = "copying alone", "both, of one length", "both, as long as pays"


class Found(NamedTuple):
    """The measurements of an engine with one way to draft, by kind: of each question, or batch of them, by round."""

    by_kind: dict[str, list[list[Measurement]]]

    def rounds(self, kind: str) -> list[list[Measurement]]:
        """Of each question, or batch of questions, of a kind or of all."""
        return [rounds for name, found in self.by_kind.items() if kind in (name, ALL) for rounds in found]

    def of(self, kind: str) -> list[Measurement]:
        """Those of a kind, or all."""
        return list(chain(*self.rounds(kind)))

    def speed(self, kind: str) -> float:
        """Tokens/s: of each question's middle round, or two of them, all tokens over all seconds."""
        return rate(list(chain(*map(middle, self.rounds(kind)))))

    def choosing(self, kind: str) -> float:
        """Share of the time that finding what may be copied and choosing lengths takes."""
        seconds = sum(one.seconds for one in self.of(kind))
        return sum(one.time_share("lengths") * one.seconds for one in self.of(kind)) / seconds


def middle(rounds: Sequence[Measurement]) -> list[Measurement]:
    """The round of the median speed; of an even number both that are next to it."""
    by_speed = sorted(rounds, key=lambda one: one.tokens_per_second)
    return by_speed[(len(rounds) - 1) // 2 : len(rounds) // 2 + 1]


def copying_arguments(engine: str, cost: Any, adaptive: bool = True) -> list[str]:
    """Return an engine's arguments for drafts that are copied as well; cost: of steps, None: the engine times them."""
    if engine == "vllm":
        settings = {"copy": True} | ({"step_cost": cost} if cost is not None else {})
        return ["--additional-config", json.dumps({"mtpc": settings | ({} if adaptive else {"adaptive": False})})]
    whole = "" if adaptive else "&adaptive=false"
    return ["--speculative-token-map", token_map(cost) + whole, "--disable-overlap-schedule"]


def contestants(given: argparse.Namespace, longest_prompt: int) -> dict[str, ServerSettings]:
    """All that is measured, by name, in the order of the columns.

    longest_prompt: in tokens.

    Errors: `MTPCError` for a wrong setting.
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
    always = replace(drafted, extra=(*plain.extra, *copying_arguments(given.engine, None, adaptive=False)))
    paying = replace(drafted, extra=(*plain.extra, *copying_arguments(given.engine, cost)))
    paying = replace(paying, num_drafts=max(own, given.copied_drafts))
    return {
        NO_DRAFTER: plain,
        **{name: replace(plain, ngram=ngram) for name, ngram in ngrams.items()},
        **({DRAFTER: drafted} if "drafter" in given.beside else {}),
        **({} if given.alone is None else {ALONE: replace(paying, drafter=given.alone)}),
        **({OF_ONE_LENGTH: always} if "one-length" in given.beside else {}),
        BOTH: paying,
    }


class Point(NamedTuple):
    """What was found at a temperature with so many requests at a time, by name of the contestant."""

    temperature: float
    batch_size: int
    found: dict[str, Found]

    def better(self, kind: str) -> float:
        """Of both, as long as pays, to the better one of those that they are made of."""
        return self.found[BOTH].speed(kind) / max(
            self.found[name].speed(kind) for name in (DRAFTER, ALONE, NO_DRAFTER) if name in self.found
        )

    def table(self) -> Table:
        """One row for each kind, one column for each contestant."""
        (plain, *drafted), rows = self.found.values(), []
        for kind in [*plain.by_kind, ALL]:
            cells = [f"{plain.speed(kind):.1f}"]
            for one in drafted:
                speed = one.speed(kind)
                cells.append(speed_cell(speed, speed / plain.speed(kind), tokens_per_step(one.of(kind))))
            share = f"{100 * self.found[BOTH].choosing(kind):.1f} %"
            rows.append([kind, *cells, f"{self.better(kind):.2f}", share])
        columns = ["kind", *self.found, "to the better", "choosing"]
        where = f"T = {self.temperature:g}, batch {self.batch_size}"
        return Table(f"Tokens/s (speed-up, tokens a step), {where}", columns, rows)

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        plain = self.found[NO_DRAFTER]
        found = {
            name: {
                "speedup": one.speed(ALL) / plain.speed(ALL),
                "choosing": one.choosing(ALL),
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
    """What one run measures, and what it has found so far."""

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
        """Every question, to every contestant in turn, at each temperature and batch size."""
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
            told = ", ".join(f"{name} {found.speed(kind):.1f}" for name, found in point.found.items())
            self.console.print(f"{kind}: {told} tokens/s", highlight=False)
            self.write()

    def write(self) -> None:
        """results.json and results.md."""
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
        made = f"Questions: {', '.join(f'{number} {kind}' for kind, number in questions.items())}; at most "
        made += f"{self.given.max_tokens} tokens each, asked {self.given.rounds} times. Made by `{facts['command']}`."
        tables = "\n".join(point.table().to_markdown() for point in self.points)
        (self.given.out / "results.md").write_text(f"{tables}\n{made}\n")


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--drafter", type=Path, required=True)
    add("--alone", type=Path, help="a drafter that only copies, as `mtpc train copying` makes it")
    add("--engine", choices=("vllm", "sglang"), default="vllm", help="vLLM without its server (default: %(default)s)")
    add("--prompts", type=Path, required=True, nargs="+", help="files of JSON Lines, as for `mtpc bench`")
    add("--questions", type=int, default=6, help="of each kind, at most (default: %(default)s)")
    add("--rounds", type=int, default=1, help="how often each is asked (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="of an answer (default: %(default)s)")
    add("--temperatures", type=float, nargs="+", default=[0.0], help="default: 0")
    add("--batch-sizes", type=int, nargs="+", default=[1], help="requests at a time (default: 1)")
    beside = "who else drafts, as much in every step (default: both of these)"
    add("--beside", nargs="*", choices=("drafter", "one-length"), default=["drafter", "one-length"], help=beside)
    add("--ngram", action="append", default=[], metavar="MIN-MAX:K", help="the engine's own drafter, as in 2-4:5")
    add("--copied-drafts", type=int, default=10, help="longest draft that is copied (default: %(default)s)")
    add("--step-cost", metavar="JSON", help="by which lengths are chosen, as `mtpc plan` prints it")
    add("--server-arg", action="append", default=[], help="an argument for all, as in --server-arg=--dtype=float32")
    add("--out", type=Path, default=Path("runs/copying"))
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure what is asked for."""
    console, arguments = Console(), read_arguments(given)
    engine = find_engine(arguments.engine, offline=arguments.engine == "vllm")
    must_be_installed(engine)
    Benchmark(arguments, engine, console).run()
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
