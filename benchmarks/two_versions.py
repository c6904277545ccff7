r"""What a change costs: the same server out of two checkouts of this repository, asked the same in turn.

    git worktree add ../before v0.1.0
    python -m benchmarks.two_versions ../before --engine sglang --target weights/byte-target \
        --drafter weights/byte-mtpc-hmm-n8 --prompts plugins/mtpc/lab/text/prompts.jsonl --out runs/two-versions

Both are there at once, in the environment of this one, and answer every batch of prompts one after the other, in one
round the first before the second, in the next the other way round, so that a machine whose speed drifts slows them
alike.  Two figures tell what it leaves of the truth: the median of all pairs, and tokens/s of each batch's best round.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.in_turn import in_order, in_turn
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.results import measurement_to_json, rate, tokens_per_step
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.engines import find_engine, must_be_installed
from mtpc.lab.servers.load import Sampling
from mtpc.lab.servers.server import Server, running, tidy_end
from mtpc.lab.servers.speculation import drafts_of
from mtpc.lab.table import Table

HERE = Path(__file__).parents[1]
BEFORE, NOW = "before", "now"  # the fields of a pair


class Pair(NamedTuple):
    """What both made of a batch of prompts, one right after the other."""

    before: Measurement
    now: Measurement


class Rates(NamedTuple):
    """Tokens/s of both."""

    before: float
    now: float


class Found(NamedTuple):
    """The pairs of a temperature and a number of requests at a time, by batch of prompts, then by round."""

    temperature: float
    batch_size: int
    batches: list[list[Pair]]

    @property
    def pairs(self) -> list[Pair]:
        """All of them."""
        return [pair for batch in self.batches for pair in batch]

    def ratios(self) -> list[float]:
        """Tokens/s of now over those of before, of each pair."""
        return [pair.now.tokens_per_second / pair.before.tokens_per_second for pair in self.pairs]

    def best(self) -> Rates:
        """Tokens/s of each batch's best round."""
        return Rates(*(best_rate(rounds) for rounds in zip(*map(by_version, self.batches), strict=True)))

    def row(self) -> list[str]:
        """Of the table."""
        ratios, best = self.ratios(), self.best()
        low, high = quantiles(ratios, n=4)[::2] if len(ratios) > 1 else ratios * 2
        same = sum(pair.before.texts == pair.now.texts for pair in self.pairs)
        steps = map(tokens_per_step, by_version(self.pairs))
        cells = [f"{self.temperature:g}", f"{self.batch_size}", f"{best.before:.1f}", f"{best.now:.1f}"]
        cells += [f"{best.now / best.before:.2f}", f"{median(ratios):.2f}", f"{low:.2f} to {high:.2f} ({len(ratios)})"]
        return [*cells, " / ".join(f"{each:.2f}" for each in steps), f"{same} of {len(ratios)}"]

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "temperature": self.temperature,
            "batch_size": self.batch_size,
            "best": self.best()._asdict(),
            "ratios": self.ratios(),
            "batches": [
                [{name: measurement_to_json(one) for name, one in pair._asdict().items()} for pair in batch]
                for batch in self.batches
            ],
        }


def by_version(pairs: Sequence[Pair]) -> tuple[list[Measurement], list[Measurement]]:
    """Those of before, and those of now."""
    return [pair.before for pair in pairs], [pair.now for pair in pairs]


def best_rate(batches: Sequence[Sequence[Measurement]]) -> float:
    """Tokens/s of the best round of each batch."""
    best = [max(rounds, key=lambda one: one.tokens_per_second) for rounds in batches]
    return rate(best)


def make_table(found: Sequence[Found]) -> Table:
    """A row for each temperature and number of requests at a time."""
    columns = ["T", "batch", "before, best", "now, best", "ratio of the best", "median of pairs"]
    columns += ["quartiles (pairs)", "tokens a step", "same text"]
    return Table("Tokens/s of two versions", columns, [one.row() for one in found])


def out_of(checkout: Path, engine: Engine) -> Engine:
    """The engine with the plugins of a checkout, which go before those that are installed.

    Errors: `MTPCError` where there are none.
    """
    plugins = checkout.resolve() / "plugins"
    if not (plugins / "mtpc").is_dir():
        raise MTPCError(f"{checkout} is no checkout of this repository: it holds no plugins/mtpc.")
    return replace(engine, environment=lambda: {**engine.environment(), "PYTHONPATH": str(plugins)})


def commit_at(checkout: Path) -> str:
    """The commit of a checkout, see `mtpc.files.provenance.commit_of`."""
    return provenance.commit_of(checkout.resolve() / "pyproject.toml")


def measure(given: argparse.Namespace, engine: Engine, console: Console) -> list[Found]:
    """Every batch of prompts to both, round after round, at each temperature and batch size."""
    prompts = prompts_of_file(given.prompts, given.target, given.questions)
    asked = [prompt for of_kind in prompts.by_kind.values() for prompt in of_kind]
    drafts = 0 if given.drafter is None else drafts_of(given.drafter, None)
    length = max(map(len, asked)) + given.max_tokens + 1 + drafts
    most = max(given.batch_sizes)
    settings = ServerSettings(given.target, most, length, given.drafter, drafts, tuple(given.server_arg))
    engines = {BEFORE: out_of(given.other, engine), NOW: out_of(HERE, engine)}
    given.out.mkdir(parents=True, exist_ok=True)
    with tidy_end(), ExitStack() as stack:
        answering = {
            name: stack.enter_context(running(one, settings, given.out / f"server_{name}.log"))
            for name, one in engines.items()
        }
        servers = {name: answer() for name, answer in answering.items()}
        found = []
        for temperature, batch_size in product(given.temperatures, given.batch_sizes):
            sampling = Sampling(given.max_tokens, temperature, ignore_eos=not prompts.answered)
            rounds = [one_round(engine, servers, asked, batch_size, sampling, each) for each in range(given.rounds)]
            found.append(Found(temperature, batch_size, [list(batch) for batch in zip(*rounds, strict=True)]))
            console.print(make_table(found[-1:]).to_rich())
    return found


def one_round(
    engine: Engine,
    servers: Mapping[str, Server],
    asked: Sequence[list[int]],
    batch_size: int,
    sampling: Sampling,
    number: int,
) -> list[Pair]:
    """Every batch once; which of both is asked first changes from round to round."""
    order = in_order(servers, number)
    return [Pair(**found) for found in in_turn(engine, order, asked, batch_size, sampling)]


def write(given: argparse.Namespace, found: Sequence[Found]) -> None:
    """results.json and results.md."""
    commits = {BEFORE: commit_at(given.other), NOW: commit_at(HERE)}
    facts = provenance.collect()
    results = {
        "provenance": facts,
        "commits": commits,
        "settings": vars(given),
        "points": [one.to_json() for one in found],
    }
    (given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
    made = f"Before: {commits[BEFORE]}, now: {commits[NOW]}; made by `{facts['command']}`."
    (given.out / "results.md").write_text(f"{make_table(found).to_markdown()}\n{made}\n")


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("other", type=Path, metavar="BEFORE", help="another checkout of this repository")
    add("--engine", default="vllm", help="vllm or sglang (default: %(default)s)")
    add("--offline", action="store_true", help="the engine alone in a process, without a server (vllm only)")
    add("--target", type=Path, required=True)
    add("--drafter", type=Path, help="which both can read (default: none)")
    add("--prompts", type=Path, required=True, help="JSON Lines, as for `mtpc bench`")
    add("--questions", type=int, default=4, help="of each kind, at most (default: %(default)s)")
    add("--rounds", type=int, default=4, help="how often each is asked (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="of an answer (default: %(default)s)")
    add("--temperatures", type=float, nargs="+", default=[0.0], help="default: 0")
    add("--batch-sizes", type=int, nargs="+", default=[1], help="requests at a time (default: 1)")
    add("--server-arg", action="append", default=[], help="an argument for both, as in --server-arg=--dtype=float32")
    add("--out", type=Path, default=Path("runs/two-versions"))
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Measure both, and show the table."""
    console, arguments = Console(), read_arguments(given)
    engine = find_engine(arguments.engine, arguments.offline)
    must_be_installed(engine)
    found = measure(arguments, engine, console)
    write(arguments, found)
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
