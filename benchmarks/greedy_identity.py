r"""Compare greedy outputs with and without a drafter, token by token, in float32 and in mixed batches.

    mtpc convert pair runs/smollm2 --target runs/qwen05 --method tli --out runs/tli
    mtpc convert pair runs/smollm2 --target runs/qwen05 --method slem --out runs/slem
    python -m benchmarks.greedy_identity --engine vllm --target runs/qwen05 --drafter tli=runs/tli \
        --drafter slem=runs/slem --prompts spec_bench.jsonl --out runs/greedy-identity

One server runs after the other, the one without a drafter and without this project's plugin last.  Each gets the same
prompts, spread over the file, at a fixed concurrency; every fourth request is a sampled one.  No output ends early.
Where an output differs, the first difference is printed: both tokens, and the gap of their log-probabilities on the
server without a drafter, which also completes this prompt once more, alone.  The command fails where a gap is too
large for rounding.  Outputs are kept in the folder: the same command continues there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.kept import Kept, digest
from benchmarks.speed_contestants import Contestant, add_arguments, contestants
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import CompletionRequest, TokenIds
from mtpc.lab.prove.plan import GREEDY, SamplingSetting
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.server import exit_on_signals, running
from mtpc.lab.table import Table

SAMPLED = SamplingSetting(temperature=0.9)
CONSOLE = Console(width=140)
DIFFERENCES = "first differences"
EVERY = 4  # of these requests one is sampled


class Outputs(NamedTuple):
    """What a server completed.

    Attributes:
        texts: The greedy output of each prompt.
        drafts: Counts of draft tokens, of sampled requests too.
        seconds: How long all requests took.
    """

    texts: list[TokenIds]
    drafts: DraftCounters
    seconds: float


class FirstDifference(NamedTuple):
    """Where an output first differs from that of the server without a drafter.

    Attributes:
        prompt: Index of the prompt.
        position: Of the token in the output.
        token: The drafted server's.
        expected: The other server's.
        gap: Log-probability of ``expected`` less that of ``token``; None where one is not among the most probable.
        alone: What the server without a drafter generates there at batch size 1.
    """

    prompt: int
    position: int
    token: int
    expected: int
    gap: float | None
    alone: int


def requests(prompts: Sequence[TokenIds], length: int) -> list[CompletionRequest]:
    """A greedy request for each prompt, and after each three of them a sampled one, which ends earlier."""
    every: list[CompletionRequest] = []
    for number, prompt in enumerate(prompts):
        every.append(CompletionRequest(prompt, length, GREEDY))
        if number % (EVERY - 1) == EVERY - 2:
            every.append(CompletionRequest(prompt, -(-length // EVERY), SAMPLED))
    return every


def complete(client: Client, prompts: Sequence[TokenIds], length: int) -> Outputs:
    """Send all requests, and return the greedy outputs."""
    before, began, every = client.counters(), time.perf_counter(), requests(prompts, length)
    found = client.complete(every)
    seconds = time.perf_counter() - began
    texts = [text for request, (text,) in zip(every, found.texts, strict=True) if request.sampling == GREEDY]
    return Outputs(texts, found.drafts + client.counters().since(before), seconds)


def first_differences(
    baseline: Client, prompts: Sequence[TokenIds], expected: Sequence[TokenIds], found: Sequence[TokenIds]
) -> Iterator[FirstDifference]:
    """Compare outputs, and ask the server without a drafter about each that differs."""
    for number, (prompt, own, other) in enumerate(zip(prompts, expected, found, strict=True)):
        if own == other:
            continue
        position = next(i for i, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1])
        (top,) = baseline.next_top_logprobs([prompt + own[:position]])
        known = dict(zip(top.ids, top.logprobs, strict=True))
        both = [known.get(own[position]), known.get(other[position])]
        gap = None if None in both else both[0] - both[1]  # type: ignore[operator]  # checked
        ((alone,),) = baseline.complete([CompletionRequest(prompt, len(own), GREEDY)], concurrency=1).texts
        yield FirstDifference(number, position, other[position], own[position], gap, alone[position])


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    add("--prompts", type=Path, required=True, help="a file of JSON Lines, as for `mtpc bench`")
    add("--count", type=int, default=50, help="prompts, spread over the file (default: %(default)s)")
    add("--longest", type=int, default=300, help="tokens of the longest prompt that is used (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="length of every output (default: %(default)s)")
    add("--concurrency", type=int, default=4, help="requests at a time (default: %(default)s)")
    add("--tie", type=float, default=1e-3, help="largest gap that is rounding (default: %(default)s)")
    add("--dtype", default="float32", help="of the target (default: %(default)s)")
    add("--out", type=Path, default=Path("runs/greedy-identity"))
    parser.set_defaults(temperatures=[0.0, SAMPLED.temperature], trees=[], borrow=[], max_children=None)
    return parser.parse_args(given)


def choose(file: Path, target: Path, count: int, longest: int) -> list[TokenIds]:
    """Return prompts spread over a file, none of them longer than this."""
    asked = chain.from_iterable(prompts_of_file(file, target, sys.maxsize).by_kind.values())
    short = [tuple(prompt) for prompt in asked if len(prompt) <= longest]
    if not short:
        raise MTPCError(f"{file} holds no prompt of at most --longest {longest} tokens.")
    count = min(count, len(short))
    return [short[number * len(short) // count] for number in range(count)]


class Comparison:
    """What one run compares; the outputs of each server are kept in the folder."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.engine, self.kept = given, find_engine(given.engine), Kept(given.out / "kept")
        must_be_installed(self.engine)
        self.prompts = choose(given.prompts, given.target, given.count, given.longest)
        given.batch_size, given.server_arg = given.concurrency, [f"--dtype={given.dtype}", *given.server_arg]
        self.plain, *self.drafted = contestants(given, self.engine, max(map(len, self.prompts)))
        if not self.drafted:
            raise MTPCError("give at least one --drafter NAME=DIR, or --ngram.")
        self.common = {"engine": self.engine.title, "versions": provenance.collect()["versions"]}
        self.common |= {"target": digest(given.target), "prompts": self.prompts, "tokens": given.max_tokens}
        self.common |= {"arguments": given.server_arg, "concurrency": given.concurrency}

    @contextmanager
    def client(self, one: Contestant) -> Iterator[Client]:
        """Run a server."""
        settings = self.engine.as_released(one.settings, [0.0])
        stem = re.sub(r"\W+", "-", one.name)
        with exit_on_signals(), running(self.engine, settings, self.given.out / f"server_{stem}.log") as answer:
            yield Client(answer().url, self.given.concurrency)

    def outputs(self, one: Contestant) -> Outputs:
        """Return what is kept of a server, or run it."""
        made_of = self.common | one.made_of
        kept = self.kept.read(one.name, made_of)
        if kept is not None:
            return Outputs(list(map(tuple, kept["texts"])), DraftCounters(**kept["drafts"]), kept["seconds"])
        with self.client(one) as client:
            found = complete(client, self.prompts, self.given.max_tokens)
        self.kept.write(one.name, made_of, found._asdict() | {"drafts": asdict(found.drafts)})
        CONSOLE.print(f"{one.name}: {len(found.texts)} outputs in {found.seconds:.0f} s", highlight=False)
        return found

    def results(self) -> list[dict[str, Any]]:
        """Return the row of each drafter, and its differences."""
        found = {one.name: self.outputs(one) for one in (*self.drafted, self.plain)}
        expected = found.pop(self.plain.name).texts
        different: dict[str, list[FirstDifference]] = {name: [] for name in found}
        if any(each.texts != expected for each in found.values()):
            with self.client(self.plain) as client:
                for name, each in found.items():
                    different[name] += first_differences(client, self.prompts, expected, each.texts)
        return [result(name, each, different[name], self.given.tie) for name, each in found.items()]


@one_sentence
def compare(given: argparse.Namespace) -> None:
    """Run all servers, print a table and the differences, and write results.json."""
    given.out.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(given)
    results = comparison.results()
    rows = [[str(value) for key, value in each.items() if key != DIFFERENCES] for each in results]
    columns = [key for key in results[0] if key != DIFFERENCES]
    title = (
        f"{comparison.engine.title}, {given.dtype}, {len(comparison.prompts)} prompts of {given.max_tokens} tokens, "
    )
    CONSOLE.print(Table(f"{title}concurrency {given.concurrency}", columns, rows).to_rich())
    for each in results:
        for difference in each[DIFFERENCES]:
            CONSOLE.print(f"{each['drafter']}: {difference}", highlight=False)
    settings = {key: str(value) for key, value in vars(given).items()}
    facts = {"provenance": provenance.collect(prompts=given.prompts.name), "settings": settings}
    (given.out / "results.json").write_text(json.dumps({"results": results, **facts}, indent=1) + "\n")
    if any(each["not rounding"] for each in results):
        raise MTPCError(f"an output differs by more than rounding, --tie {given.tie}.")


def result(name: str, found: Outputs, different: Sequence[FirstDifference], tie: float) -> dict[str, Any]:
    """One drafter's row, and its differences."""
    wrong = [each for each in different if each.gap is None or abs(each.gap) > tie]
    same = sum(map(len, found.texts)) - sum(len(found.texts[one.prompt]) - one.position for one in different)
    return {
        "drafter": name,
        "outputs": len(found.texts),
        "equal": len(found.texts) - len(different),
        "equal tokens": same,
        "rounding": len(different) - len(wrong),
        "not rounding": len(wrong),
        "draft tokens": round(found.drafts.draft_tokens),
        "accepted": round(found.drafts.accepted),
        "acceptance length": round(found.drafts.acceptance_length, 2),
        "seconds": round(found.seconds),
        DIFFERENCES: [each._asdict() for each in different],
    }


def main(given: Sequence[str] | None = None) -> int:
    """Compare, and return the exit code."""
    return compare(read_arguments(given))


if __name__ == "__main__":
    sys.exit(main())
