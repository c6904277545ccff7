r"""Tokens/s by kind of question: no drafter, vLLM's own n-gram drafter, a drafter, and the same drafter that copies.

    python -m benchmarks.copying --target runs/smollm2 --drafter weights/smollm2-fastmtp \
        --prompts questions.jsonl --out runs/copying

All of them are there at once, each in a process, and answer every question in turn, so that a machine whose speed
drifts slows them alike.  results.json and results.md are written anew after each kind.  Questions: as
`mtpc bench --prompts`, Spec-Bench's own too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
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
    """A contestant's measurements by kind: of each question, or batch of questions."""

    contestant: Contestant
    by_kind: dict[str, list[Measurement]]

    def of(self, kind: str) -> list[Measurement]:
        """Those of a kind, or all."""
        return [one for name, found in self.by_kind.items() if kind in (name, ALL) for one in found]

    def speed(self, kind: str) -> float:
        """Tokens/s, of all tokens over all seconds."""
        return sum(one.tokens for one in self.of(kind)) / sum(one.seconds for one in self.of(kind))

    def acceptance_length(self, kind: str) -> float:
        """Tokens of a step, those steps included in which nothing was drafted."""
        tokens = sum(one.tokens - one.requests for one in self.of(kind))  # the first comes of the prompt
        return tokens / (tokens - sum(one.drafts.accepted for one in self.of(kind)))


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
        Contestant("no drafter"),
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

    def run(self, contestants: Sequence[Contestant]) -> None:
        """Every question, to every contestant in turn."""
        out: Path = self.given.out
        out.mkdir(parents=True, exist_ok=True)
        with tidy_end(), ExitStack() as stack:
            answering = [stack.enter_context(self._running(one, number)) for number, one in enumerate(contestants)]
            servers = [answer() for answer in answering]
            self.found = [Found(contestant, {}) for contestant in contestants]
            for kind, prompts in self.asked.items():
                for start in range(0, len(prompts), self.given.batch_size):
                    batch = prompts[start : start + self.given.batch_size]
                    for found, server in zip(self.found, servers, strict=True):
                        found.by_kind.setdefault(kind, []).append(self._measure(server, batch))
                told = ", ".join(f"{found.contestant.name} {found.speed(kind):.1f}" for found in self.found)
                self.console.print(f"{kind}: {told} tokens/s", highlight=False)
                self.write()

    def _running(self, contestant: Contestant, number: int) -> AbstractContextManager[Callable[[], Server]]:
        out: Path = self.given.out
        settings = replace(
            self.plain,
            drafter=contestant.drafter,
            num_drafts=contestant.drafts,
            max_length=self.plain.max_length + contestant.drafts,
            extra=(*self.plain.extra, *contestant.arguments),
        )
        times = None if contestant.drafter is None else out / f"draft_times_{number}.json"
        return running(self.engine, settings, out / f"server_{number}.log", times)

    def _measure(self, server: Server, batch: Sequence[Prompt]) -> Measurement:
        short = replace(self.sampling, max_tokens=WARM_UP)
        self.engine.load(server.url, server.model(), batch[:1], short, 1)
        return measure(self.engine, server, server.model(), batch, self.sampling, len(batch))

    def table(self) -> Table:
        """One row for each kind, one column for each contestant."""
        plain, rows = self.found[0], []
        for kind in [*plain.by_kind, ALL]:
            cells = [f"{plain.speed(kind):.1f}"]
            for one in self.found[1:]:
                speedup = one.speed(kind) / plain.speed(kind)
                cells.append(f"{one.speed(kind):.1f} ({speedup:.2f} x, {one.acceptance_length(kind):.2f})")
            rows.append([kind, *cells])
        where = f"T = {self.given.temperature:g}, batch {self.given.batch_size}"
        names = [found.contestant.name for found in self.found]
        return Table(f"Tokens/s (speed-up, tokens a step), {where}", ["kind", *names], rows)

    def write(self) -> None:
        """results.json and results.md."""
        facts, plain = provenance.collect(), self.found[0]
        found = [
            {
                "name": one.contestant.name,
                "arguments": one.contestant.arguments,
                "drafts": one.contestant.drafts,
                "speedup": one.speed(ALL) / plain.speed(ALL),
                "acceptance_length": one.acceptance_length(ALL),
                "by_kind": {kind: [measurement_to_json(each) for each in all_] for kind, all_ in one.by_kind.items()},
                "same_text": sum(a.texts == b.texts for a, b in zip(one.of(ALL), plain.of(ALL), strict=True)),
            }
            for one in self.found
        ]
        questions = {kind: len(prompts) for kind, prompts in self.asked.items()}
        results = {"provenance": facts, "settings": vars(self.given), "questions": questions, "found": found}
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
