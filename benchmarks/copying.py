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
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from mtpc import provenance
from mtpc.bench.measure import Measurement, measure
from mtpc.bench.report import speed_cell
from mtpc.bench.results import DRAFTER, NO_DRAFTER, measurement_to_json, tokens_per_step
from mtpc.errors import MTPCError
from mtpc.evaluation.prompts import prompts_of_file
from mtpc.prompts import Prompt
from mtpc.servers.engine import Engine, ServerSettings
from mtpc.servers.engines import find_engine, must_be_installed
from mtpc.servers.load import Sampling
from mtpc.servers.ngram import Ngram
from mtpc.servers.server import Server, side_by_side
from mtpc.servers.speculation import drafts_of
from mtpc.table import Table

WARM_UP = 32  # tokens
ALL = "all"


class Found(NamedTuple):
    """The measurements of an engine with one way to draft, by kind: of each question, or batch of questions."""

    by_kind: dict[str, list[Measurement]]

    def of(self, kind: str) -> list[Measurement]:
        """Those of a kind, or all."""
        return [one for name, found in self.by_kind.items() if kind in (name, ALL) for one in found]

    def speed(self, kind: str) -> float:
        """Tokens/s, of all tokens over all seconds."""
        return sum(one.tokens for one in self.of(kind)) / sum(one.seconds for one in self.of(kind))


def contestants(given: argparse.Namespace, longest_prompt: int) -> dict[str, ServerSettings]:
    """All that is measured, by name, in the order of the columns.

    longest_prompt: in tokens.
    """
    own = drafts_of(given.drafter, None)
    ngrams = {f"n-gram {setting}": Ngram.parse(setting) for setting in given.ngram}
    most = max(own, given.copied_drafts, *(ngram.drafts for ngram in ngrams.values()))
    length = longest_prompt + given.max_tokens + 1 + most
    plain = ServerSettings(given.target, given.batch_size, length, extra=tuple(given.server_arg))
    drafted = replace(plain, drafter=given.drafter, num_drafts=own)
    settings = {"copy": True} | ({} if given.step_cost is None else {"step_cost": given.step_cost})
    copying = (*plain.extra, "--additional-config", json.dumps({"mtpc": settings}))
    return {
        NO_DRAFTER: plain,
        **{name: replace(plain, ngram=ngram) for name, ngram in ngrams.items()},
        DRAFTER: drafted,
        "drafter that copies": replace(drafted, num_drafts=max(own, given.copied_drafts), extra=copying),
    }


class Benchmark:
    """What one run measures, and what it has found so far."""

    def __init__(self, given: argparse.Namespace, engine: Engine, console: Console) -> None:
        self.given, self.engine, self.console = given, engine, console
        asked = prompts_of_file(given.prompts, given.target, given.questions)
        self.asked: dict[str, list[Prompt]] = {kind: list(asked.by_kind[kind]) for kind in asked.by_kind}
        self.sampling = Sampling(given.max_tokens, given.temperature, ignore_eos=not asked.answered)
        longest = max(len(prompt) for of_kind in asked.by_kind.values() for prompt in of_kind)
        self.settings = contestants(given, longest)
        self.found: dict[str, Found] = {name: Found({}) for name in self.settings}

    def run(self) -> None:
        """Every question, to every contestant in turn."""
        with side_by_side(self.engine, self.settings, self.given.out) as servers:
            for kind, prompts in self.asked.items():
                for start in range(0, len(prompts), self.given.batch_size):
                    batch = prompts[start : start + self.given.batch_size]
                    for name, server in servers.items():
                        self.found[name].by_kind.setdefault(kind, []).append(self._measure(server, batch))
                told = ", ".join(f"{name} {found.speed(kind):.1f}" for name, found in self.found.items())
                self.console.print(f"{kind}: {told} tokens/s", highlight=False)
                self.write()

    def _measure(self, server: Server, batch: Sequence[Prompt]) -> Measurement:
        short = replace(self.sampling, max_tokens=WARM_UP)
        self.engine.load(server.url, server.model(), batch[:1], short, 1)
        return measure(self.engine, server, server.model(), batch, self.sampling, len(batch))

    def table(self) -> Table:
        """One row for each kind, one column for each contestant."""
        (plain, *drafted), rows = self.found.values(), []
        for kind in [*plain.by_kind, ALL]:
            cells = [f"{plain.speed(kind):.1f}"]
            for one in drafted:
                speed = one.speed(kind)
                cells.append(speed_cell(speed, speed / plain.speed(kind), tokens_per_step(one.of(kind))))
            rows.append([kind, *cells])
        where = f"T = {self.given.temperature:g}, batch {self.given.batch_size}"
        return Table(f"Tokens/s (speed-up, tokens a step), {where}", ["kind", *self.found], rows)

    def write(self) -> None:
        """results.json and results.md."""
        facts, plain = provenance.collect(), self.found[NO_DRAFTER]
        found = [
            {
                "name": name,
                "server": asdict(self.settings[name]),
                "speedup": one.speed(ALL) / plain.speed(ALL),
                "tokens_per_step": tokens_per_step(one.of(ALL)),
                "by_kind": {kind: [measurement_to_json(each) for each in all_] for kind, all_ in one.by_kind.items()},
                "same_text": sum(a.texts == b.texts for a, b in zip(one.of(ALL), plain.of(ALL), strict=True)),
            }
            for name, one in self.found.items()
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
        benchmark.run()
    except MTPCError as error:
        print(f"copying: {error}", file=sys.stderr)
        return 2
    console.print(benchmark.table().to_rich())
    console.print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
