r"""Tokens/s of an engine by prompt category: without a drafter, with its n-gram drafter, and with draft methods.

    python -m benchmarks.speed --engine sglang --target runs/smollm2 --drafter one=runs/one --drafter other=runs/other \
        --ngram 1-7:11 --prompts spec_bench.jsonl --trees 16 --borrow 8 --max-children 4 --out runs/speed-sglang
    python -m benchmarks.speed --engine vllm --offline --target runs/smollm2 --drafter one=runs/one --drafter \
        other=runs/other --ngram 2-4:5 --prompts spec_bench.jsonl --out runs/speed-vllm

An engine without a drafter runs all the time, and the engines with a drafter run one after the other.  The two engines
that run at a time complete every prompt in turn, so that changes of the machine's speed affect both alike.  Speedups
are those of such pairs.

A drafter is measured as a chain, and with --trees also as trees.  Where draft times are known, a second table shows
the share of a decoding step that each part of drafting takes.  Results are kept in the folder of --out: the same
command continues where it stopped, and measures only what is new.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.arguments import listed, one_sentence
from benchmarks.in_turn import in_turn
from benchmarks.kept import Kept, digest, digest_of
from benchmarks.questions import Question, asked, read_questions
from benchmarks.speed_contestants import Contestant, add_arguments, contestants
from benchmarks.speed_tables import ALL, Found, draw_speedups, make_tables
from mtpc.files import provenance
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.results import Point
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.server import Server, exit_on_signals, running
from mtpc.lab.text.prompts import Prompt

SHIPPED = Path(__file__).parent / "chat_prompts.jsonl"
WIDTH = 180  # of the printed tables, in characters


class Benchmark:
    """One run of the benchmark, with the results so far."""

    def __init__(self, given: argparse.Namespace, engine: Engine, console: Console) -> None:
        self.given, self.engine, self.console, self.kept = given, engine, console, Kept(given.out / "kept")
        questions: list[Question] = []
        for file in given.prompts or ([] if given.data else [SHIPPED]):
            questions += read_questions(None, file, given.target, given.questions)
        for folder in given.data:
            held_out = read_questions(folder, folder, given.target, given.questions)
            questions += [Question(f"{folder.name}: {one.kind}", one.tokens) for one in held_out]
        self.asked: dict[str, list[Prompt]] = {kind: list(of) for kind, of in asked(questions).by_kind.items()}
        longest = max(len(question.tokens) for question in questions)
        self.plain, *self.others = contestants(given, engine, longest)
        self.common = {"engine": (engine.title, provenance.collect()["versions"]), "target": digest(given.target)}
        self.common |= {"arguments": given.server_arg, "batch": given.batch_size, "tokens": given.max_tokens}
        self.found: Found = {}

    def run(self) -> None:
        """Measure every drafter whose results are incomplete, in turn with the engine without a drafter."""
        left = {one.name: self._left(one) for one in self.others}
        self.write()
        if not any(left.values()):
            return
        with (
            exit_on_signals(),
            running(self.engine, self.plain.settings, self.given.out / "server_without.log") as answering,
        ):
            for number, one in enumerate(self.others):
                if left[one.name]:
                    self._measure(one, left[one.name], answering(), number)

    def _left(self, one: Contestant) -> list[tuple[float, str]]:
        """Read the kept results, and return the temperatures and categories without one."""
        left = []
        for temperature in one.temperatures:
            for kind in self.asked:
                point = self.kept.read(*self._file(one, temperature, kind))
                if point is None:
                    left.append((temperature, kind))
                else:
                    self.found[one.name, temperature, kind] = point
        return left

    def _file(self, one: Contestant, temperature: float, kind: str) -> tuple[str, dict[str, Any]]:
        """Return the name of a kept result, and its inputs."""
        made_of = {**self.common, **one.made_of, "questions": digest_of(self.asked[kind])}
        return f"{one.name} {kind} T={temperature:g}", made_of

    def _measure(self, one: Contestant, left: Sequence[tuple[float, str]], without: Server, number: int) -> None:
        """Measure one drafter in turn with the engine without a drafter."""
        given, times = self.given, self.given.out / f"draft_times_{number}.json"
        times.unlink(missing_ok=True)
        self.console.print(f"starting {self.engine.title} with {one.name} ...", highlight=False)
        with ExitStack() as stack:
            timed = times if one.settings.drafter is not None else None
            log = given.out / f"server_with_{number}.log"
            servers = {self.plain.name: without}
            servers[one.name] = stack.enter_context(running(self.engine, one.settings, log, timed))()
            for temperature, kind in left:
                sampling = CompletionParams(given.max_tokens, temperature, ignore_eos=False)
                pairs = [
                    tuple(found.values())
                    for found in in_turn(self.engine, servers, self.asked[kind], given.batch_size, sampling)
                ]
                point = self._point(temperature, pairs)
                self.found[one.name, temperature, kind] = point
                self.kept.write(*self._file(one, temperature, kind), point)
                self.console.print(
                    f"{one.name}, {kind}, T = {temperature:g}: {point['tokens_per_second_with']:.1f} tokens/s, "
                    f"speedup {point['speedup']:.2f}x",
                    highlight=False,
                )
                self.write()

    def _point(self, temperature: float, pairs: Sequence[tuple[Measurement, ...]]) -> dict[str, Any]:
        without, drafted = zip(*pairs, strict=True)
        return Point(self.given.batch_size, temperature, without, drafted).to_json()

    def write(self) -> None:
        """Write results.json, the tables in results.md, and speed.png."""
        given, facts = self.given, provenance.collect()
        counts = {kind: len(prompts) for kind, prompts in self.asked.items()}
        results = {
            "provenance": facts,
            "settings": vars(given),
            "questions": counts,
            "found": [
                {"name": name, "temperature": temperature, "kind": kind, **point}
                for (name, temperature, kind), point in self.found.items()
            ],
        }
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
        made = f"{self.engine.title}; prompts: {', '.join(f'{number} {kind}' for kind, number in counts.items())}; "
        made += f"concurrency {given.batch_size}, at most {given.max_tokens} tokens per output. "
        made += f"Command: `{facts['command']}`."
        parts = [table.to_markdown() for table in self.tables()]
        (given.out / "results.md").write_text("\n".join([*parts, made]) + "\n")
        if self.found:
            draw_speedups(self.found).savefig(given.out / "speed.png", dpi=150)

    def tables(self) -> list[Any]:
        """Return the tables of the results so far."""
        return make_tables(self.found, [*self.asked, *([ALL] if len(self.asked) > 1 else [])])


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    add("--offline", action="store_true", help="run the engine without its HTTP server (vllm only)")
    file = (
        'measure these prompts: JSON Lines with "user" or "text", and "kind" for the category, or the file of '
        "Spec-Bench; may be repeated (default: benchmarks/chat_prompts.jsonl)"
    )
    add("--prompts", type=Path, action="append", default=[], help=file)
    add("--data", type=Path, action="append", default=[], help="measure the held-out questions of these conversations")
    add("--questions", type=int, default=4, help="limit the prompts of each category (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="limit the tokens of an output (default: %(default)s)")
    temperatures = "sampling temperatures, comma-separated; 0 is greedy (default: %(default)s)"
    add("--temperatures", type=listed(float), default="0", help=temperatures)
    add("--batch-size", type=int, default=1, help="number of concurrent requests (default: %(default)s)")
    trees = "also measure trees with these numbers of nodes, comma-separated; SGLang only (default: chains only)"
    add("--trees", type=listed(int), default="", help=trees)
    borrow = "also measure each tree with these numbers of additional borrowed nodes, comma-separated"
    add("--borrow", type=listed(int), default="", help=borrow)
    add("--max-children", type=int, help="limit the children of a tree node; required with --trees")
    out = "write results to this folder, and continue from the results in it (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/speed"), help=out)
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure, write the results and print the tables."""
    console, arguments = Console(), read_arguments(given)
    engine = find_engine(arguments.engine, arguments.offline)
    must_be_installed(engine)
    benchmark = Benchmark(arguments, engine, console)
    benchmark.run()
    wide = Console(width=max(WIDTH, console.width))
    for table in benchmark.tables():
        wide.print(table.to_rich())
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
