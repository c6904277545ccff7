r"""Tokens/s by kind of question: no drafter, vLLM's own n-gram drafter, a drafter, and the same drafter that copies.

    python -m benchmarks.copying --target runs/smollm2 --drafter weights/smollm2-fastmtp \
        --prompts questions.jsonl --out runs/copying

Each of them runs in turn with the engine without a drafter, kind after kind, offline, in one run of the command;
results.json and results.md are written anew after each.  Questions: as `mtpc bench --prompts`, Spec-Bench's own too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from mtpc import provenance
from mtpc.bench.measure import Measurement, measure
from mtpc.bench.results import measurement_to_json
from mtpc.errors import MTPCError
from mtpc.evaluation.prompts import prompts_of_file
from mtpc.prompts import Prompt
from mtpc.servers.engine import Engine, ServerSettings
from mtpc.servers.engines import find_engine, must_be_installed
from mtpc.servers.load import Sampling
from mtpc.servers.server import Server, running, tidy_end
from mtpc.servers.speculation import drafts_of
from mtpc.table import Table

WARM_UP = 32  # tokens
ALL = "all"


class Contestant(NamedTuple):
    """A way to draft: arguments of the engine beside those of all."""

    name: str
    arguments: tuple[str, ...] = ()
    drafter: Path | None = None
    drafts: int = 0


class Found(NamedTuple):
    """A contestant's measurements by kind, and the engine's without a drafter beside them."""

    contestant: Contestant
    with_drafts: dict[str, Measurement]
    without: dict[str, Measurement]

    def speed(self, kind: str) -> float:
        """Tokens/s."""
        return rate(self.with_drafts, kind)

    def speedup(self, kind: str) -> float:
        """Over the engine without a drafter, measured in turn."""
        return rate(self.with_drafts, kind) / rate(self.without, kind)

    def acceptance_length(self, kind: str) -> float:
        """Tokens of a step, those steps included in which nothing was drafted."""
        chosen = of(self.with_drafts, kind)
        tokens = sum(one.tokens - one.requests for one in chosen)  # the first comes of the prompt
        return tokens / (tokens - sum(one.drafts.accepted for one in chosen))

    def cell(self, kind: str) -> str:
        """Of the table."""
        return f"{self.speed(kind):.1f} ({self.speedup(kind):.2f} x, {self.acceptance_length(kind):.2f})"


def of(found: dict[str, Measurement], kind: str) -> list[Measurement]:
    """Those of a kind, or all."""
    return list(found.values()) if kind == ALL else [found[kind]]


def rate(found: dict[str, Measurement], kind: str) -> float:
    """Tokens/s, of all tokens over all seconds."""
    chosen = of(found, kind)
    return sum(one.tokens for one in chosen) / sum(one.seconds for one in chosen)


def ngram(setting: str) -> Contestant:
    """vLLM's n-gram drafter: MIN-MAX:K, the tokens that must match and the tokens that are drafted."""
    try:
        lengths, drafts = setting.split(":")
        shortest, longest = map(int, lengths.split("-"))
        values = {"method": "ngram", "num_speculative_tokens": int(drafts)}
    except ValueError:
        raise MTPCError(f"--ngram is {setting!r}, but MIN-MAX:K is expected, as in 2-4:5.") from None
    values |= {"prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    return Contestant(f"n-gram {setting}", ("--speculative-config", json.dumps(values)))


def contestants(given: argparse.Namespace) -> list[Contestant]:
    """All that is measured, in the order of the columns."""
    own = drafts_of(given.drafter, None)
    settings = {"copy": True} | ({} if given.step_cost is None else {"step_cost": given.step_cost})
    copying = ("--additional-config", json.dumps({"mtpc": settings}))
    return [
        *map(ngram, given.ngram),
        Contestant("drafter", (), given.drafter, own),
        Contestant("drafter that copies", copying, given.drafter, max(own, given.copied_drafts)),
    ]


class Benchmark:
    """What one run measures, and what it has found so far."""

    def __init__(self, given: argparse.Namespace, engine: Engine, console: Console) -> None:
        self.given, self.engine, self.console = given, engine, console
        asked = prompts_of_file(given.prompts, given.target, given.questions)
        self.asked: dict[str, list[Prompt]] = {kind: list(asked.by_kind[kind]) for kind in asked.by_kind}
        self.sampling = Sampling(given.max_tokens, given.temperature, ignore_eos=not asked.answered)
        longest = max(len(prompt) for of_kind in asked.by_kind.values() for prompt in of_kind)
        length = longest + given.max_tokens + 1
        self.plain = ServerSettings(given.target, given.batch_size, length, extra=tuple(given.server_arg))
        self.found: list[Found] = []

    def run(self, drafting: Sequence[Contestant]) -> None:
        """Every contestant, in turn with the engine without a drafter."""
        out: Path = self.given.out
        out.mkdir(parents=True, exist_ok=True)
        with tidy_end(), running(self.engine, self.plain, out / "server_without.log") as answering:
            for number, contestant in enumerate(drafting):
                settings = replace(
                    self.plain,
                    drafter=contestant.drafter,
                    num_drafts=contestant.drafts,
                    max_length=self.plain.max_length + contestant.drafts,
                    extra=(*self.plain.extra, *contestant.arguments),
                )
                times = None if contestant.drafter is None else out / f"draft_times_{number}.json"
                with running(self.engine, settings, out / f"server_{number}.log", times) as drafted:
                    self._measure(contestant, answering(), drafted())
                self.write()

    def _measure(self, contestant: Contestant, without: Server, drafted: Server) -> None:
        found = Found(contestant, {}, {})
        for kind, prompts in self.asked.items():
            for server, results in ((without, found.without), (drafted, found.with_drafts)):
                short, batch = replace(self.sampling, max_tokens=WARM_UP), self.given.batch_size
                self.engine.load(server.url, server.model(), prompts[:1], short, batch)
                results[kind] = measure(self.engine, server, server.model(), prompts, self.sampling, batch)
            told = f"{contestant.name}, {kind}: {found.speed(kind):.1f} tokens/s, {found.speedup(kind):.2f} x"
            self.console.print(told, highlight=False)
        self.found.append(found)

    def table(self) -> Table:
        """One row for each kind, one column for each contestant."""
        columns, rows = ["kind", "no drafter", *(found.contestant.name for found in self.found)], []
        for kind in [*self.asked, ALL]:
            plain = [rate(found.without, kind) for found in self.found]
            rows.append([kind, f"{sum(plain) / len(plain):.1f}", *(found.cell(kind) for found in self.found)])
        where = f"T = {self.given.temperature:g}, batch {self.given.batch_size}"
        return Table(f"Tokens/s (speed-up, tokens a step), {where}", columns, rows)

    def write(self) -> None:
        """results.json and results.md."""
        facts = provenance.collect()
        contestants = [
            {
                "name": found.contestant.name,
                "arguments": found.contestant.arguments,
                "drafts": found.contestant.drafts,
                "speedup": found.speedup(ALL),
                "without": {kind: measurement_to_json(one) for kind, one in found.without.items()},
                "with": {kind: measurement_to_json(one) for kind, one in found.with_drafts.items()},
                "same_text": {
                    kind: sum(a == b for a, b in zip(one.texts, found.with_drafts[kind].texts, strict=True))
                    for kind, one in found.without.items()
                },
            }
            for found in self.found
        ]
        questions = {kind: len(prompts) for kind, prompts in self.asked.items()}
        results = {"provenance": facts, "settings": vars(self.given), "questions": questions, "found": contestants}
        (self.given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
        made = f"Questions: {', '.join(f'{number} {kind}' for kind, number in questions.items())}; at most "
        made += f"{self.given.max_tokens} tokens each. Made by `{facts['command']}`."
        (self.given.out / "results.md").write_text(f"{self.table().to_markdown()}\n{made}\n")


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--drafter", type=Path, required=True)
    add("--prompts", type=Path, required=True, help="JSON Lines, as for `mtpc bench`")
    add("--questions", type=int, default=6, help="of each kind, at most (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="of an answer (default: %(default)s)")
    add("--temperature", type=float, default=0.0)
    add("--batch-size", type=int, default=1, help="requests at a time (default: %(default)s)")
    add("--ngram", action="append", default=[], metavar="MIN-MAX:K", help="vLLM's n-gram drafter, as in 2-4:5")
    add("--copied-drafts", type=int, default=10, help="longest draft of the one that copies (default: %(default)s)")
    add("--step-cost", type=json.loads, metavar="JSON", help="of the one that copies, as `mtpc plan` prints it")
    add("--server-arg", action="append", default=[], help="an argument for all, as in --server-arg=--dtype=float32")
    add("--out", type=Path, default=Path("runs/copying"))
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 2 with one sentence when something is wrong."""
    console = Console()
    try:
        arguments = read_arguments(given)
        engine = find_engine("vllm", offline=True)
        must_be_installed(engine)
        benchmark = Benchmark(arguments, engine, console)
        benchmark.run(contestants(arguments))
    except MTPCError as error:
        print(f"copying: {error}", file=sys.stderr)
        return 2
    console.print(benchmark.table().to_rich())
    console.print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
