r"""Acceptance length and tokens/s of FastMTP drafters by kind of text: the tables of the paper, for our drafters.

    python -m benchmarks.fastmtp --target runs/smollm2 --drafter vanilla=runs/vanilla --drafter trained=runs/fastmtp \
        --vocabulary runs/vocabulary.json --data runs/distilled --out runs/fastmtp-table

One run measures every drafter with K = 1, 2 and 3 drafts, and the last one with draft vocabularies (FR): by the
language of each request, in several sizes, and with that of one language for all.

Acceptance lengths are the core's (`mtpc.lab.evaluation`): expected along answers that the target gives in float32.
Tokens/s are those of an engine, one process without and one with a drafter, measured in turn (as `mtpc bench
--offline` does), one request at a time by default.  results.json and results.md are written anew after each setup.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.arguments import listed, named_folder, one_sentence
from benchmarks.fastmtp_acceptance import Acceptance
from benchmarks.fastmtp_setups import Setup, Tables, tables
from benchmarks.fastmtp_tables import Found, make_tables
from benchmarks.questions import asked, of_kind, read_questions
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.bench.results import DRAFTER, NO_DRAFTER
from mtpc.lab.bench.run import Plan, run_plan
from mtpc.lab.evaluation.texts import write_texts
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.engines import find_engine, must_be_installed
from mtpc.lab.servers.server import Server, running, tidy_end
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.prompts import Prompt, prompt_length
from mtpc.methods.drafter import load_drafter
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.template import read_template

WIDTH = 180  # columns of a terminal that the tables fit


class Benchmark:
    """What one run measures, and what it has found so far."""

    def __init__(self, arguments: argparse.Namespace, console: Console) -> None:
        self.arguments, self.console = arguments, console
        self.folders: dict[str, Path] = dict(arguments.drafter)
        self.questions = read_questions(arguments.data, arguments.prompts, arguments.target, arguments.questions)
        compressed = None if arguments.vocabulary is None else arguments.compressed or list(self.folders)[-1]
        if compressed is not None and compressed not in self.folders:
            raise MTPCError(f"--compressed is {compressed!r}, but the drafters are {', '.join(self.folders)}.")
        self.tables: Tables = tables(list(self.folders), compressed, arguments.sizes, arguments.languages)
        self.found: dict[Setup, Found] = {}

    def expect(self) -> None:
        """The acceptance of all setups, without an engine."""
        given = self.arguments
        target = FrozenTarget(given.target)
        drafters = {name: load_drafter(folder, target.facts) for name, folder in self.folders.items()}
        rankings: Rankings | None = None
        if given.vocabulary is not None:
            rankings = read_rankings(given.vocabulary, target.facts.vocab_size)
        self.console.print(f"{given.target} answers {len(self.questions)} questions ...")
        answers = write_texts(target, asked(self.questions), given.max_tokens, given.temperature, given.seed)
        template = read_template(str(given.target))
        acceptance = Acceptance(target, drafters, rankings, answers, given.temperature, template)
        for setup in self.tables.all:
            self.found[setup] = Found(setup, acceptance.rates(setup))
            length = self.found[setup].mean_length
            self.console.print(f"K = {setup.num_drafts}, {setup.label}: {length:.3f}", highlight=False)

    def measure(self, engine: Engine) -> None:
        """Tokens/s of all setups, each in turn with the same engine without a drafter."""
        given = self.arguments
        prompts = [question.tokens for question in self.questions]
        length = max(map(prompt_length, prompts)) + given.max_tokens + max(s.num_drafts for s in self.found)
        plain = ServerSettings(given.target, given.batch_size, length, extra=tuple(given.server_arg))
        given.out.mkdir(parents=True, exist_ok=True)
        with tidy_end(), running(engine, plain, given.out / "server_without.log") as answering:
            without = answering()
            for number, (setup, found) in enumerate(self.found.items()):
                settings = drafted(plain, self.folders[setup.drafter], setup, given.vocabulary)
                with running(engine, settings, given.out / f"server_with_{number}.log") as with_drafter:
                    self._run(engine, {NO_DRAFTER: without, DRAFTER: with_drafter()}, found)
                self.write([without])

    def _run(self, engine: Engine, servers: Mapping[str, Server], found: Found) -> None:
        given, setup = self.arguments, found.setup
        for kind in found.rates:
            prompts: list[Prompt] = [question.tokens for question in of_kind(self.questions, kind)]
            requests = max(given.batch_size, len(prompts))
            plan = Plan((given.batch_size,), (given.temperature,), given.max_tokens, given.rounds, requests)
            (point,) = run_plan(engine, servers, prompts, plan, lambda *_: None)
            found.points[kind] = point
            length = point.drafts.acceptance_length
            self.console.print(
                f"K = {setup.num_drafts}, {setup.label}, {kind}: {point.rate_with:.1f} tokens/s, {point.speedup:.2f} "
                f"times that without, acceptance length {length:.2f}",
                highlight=False,
            )

    def write(self, servers: Sequence[Server] = ()) -> None:
        """results.json, and the tables in results.md."""
        given = self.arguments
        given.out.mkdir(parents=True, exist_ok=True)
        facts = provenance.collect(seed=given.seed)
        settings: dict[str, Any] = {key: value for key, value in vars(given).items() if key != "out"}
        counts = {kind: len(of_kind(self.questions, kind)) for kind in dict.fromkeys(q.kind for q in self.questions)}
        results = {
            "provenance": facts,
            "settings": settings,
            "questions": counts,
            "servers": [server.command for server in servers],
            "setups": [found.to_json() for found in self.found.values()],
        }
        (given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
        made = f"Questions: {', '.join(f'{number} {kind}' for kind, number in counts.items())}; temperature "
        made += f"{given.temperature:g}, at most {given.max_tokens} tokens each. Made by `{facts['command']}`."
        parts = [table.to_markdown() for table in self.shown()]
        (given.out / "results.md").write_text("\n".join([*parts, made]) + "\n")

    def shown(self) -> list[Any]:
        """The tables, as far as they are known."""
        return make_tables(self.tables, self.found, self.arguments.limits)


def drafted(plain: ServerSettings, folder: Path, setup: Setup, vocabulary: Path | None) -> ServerSettings:
    """The settings with a drafter: those without, and what the setup says."""
    extra = (*plain.extra, "--additional-config", json.dumps(setup.additional_config(vocabulary)))
    return ServerSettings(plain.target, plain.max_batch, plain.max_length, folder, setup.num_drafts, extra)


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shipped = Path(__file__).parent / "chat_prompts.jsonl"
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--drafter", type=named_folder, action="append", required=True, metavar="NAME=DIR")
    add("--compressed", help="the drafter that draft vocabularies are measured with (default: the last)")
    add("--vocabulary", type=Path, help="rankings, as `mtpc vocab build` writes them; none: no draft vocabularies")
    add("--sizes", type=listed(int), default="8192,16384,32768", help="of draft vocabularies (default: %(default)s)")
    add("--languages", type=listed(str), default="english,french", help="used for all (default: %(default)s)")
    add("--data", type=Path, help="conversations, whose held-out questions are asked; none: --prompts")
    file = 'JSON Lines with "kind" and "user", or Spec-Bench\'s (default: %(default)s)'
    add("--prompts", type=Path, default=shipped, help=file)
    add("--questions", type=int, default=12, help="of each kind, at most (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="of an answer (default: %(default)s)")
    add("--temperature", type=float, default=0.0)
    add("--batch-size", type=int, default=1, help="requests at a time (default: %(default)s)")
    add("--rounds", type=int, default=1, help="measurements of each point (default: %(default)s)")
    add("--limits", type=listed(float), default="", help="cost of a step over that of one that verifies 1, 2, 3 drafts")
    add("--no-engine", action="store_true", help="acceptance only")
    add(
        "--server-arg", action="append", default=[], help="an argument for both engines, as in --server-arg=--dtype=..."
    )
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("runs/fastmtp-table"))
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Count what is expected, then measure it, and show the tables."""
    console, arguments = Console(), read_arguments(given)
    engine = find_engine("vllm", offline=True)
    if not arguments.no_engine:
        must_be_installed(engine)
    benchmark = Benchmark(arguments, console)
    benchmark.expect()
    benchmark.write()
    if not arguments.no_engine:
        benchmark.measure(engine)
    wide = Console(width=max(WIDTH, console.width))
    for table in benchmark.shown():
        wide.print(table.to_rich())
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
