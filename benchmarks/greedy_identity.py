r"""Compare greedy outputs with and without a drafter, token by token, in float32 and in mixed batches.

    mtpc convert pair runs/smollm2 --target runs/qwen05 --method tli --out runs/tli
    mtpc convert pair runs/smollm2 --target runs/qwen05 --method slem --out runs/slem
    python -m benchmarks.greedy_identity --engine vllm --target runs/qwen05 --drafter tli=runs/tli \
        --drafter slem=runs/slem --prompts spec_bench.jsonl --out runs/greedy-identity

One server runs after the other.  The last one has no drafter, and does not load this project's plugin.  Each completes
the same prompts, spread over the file, at a fixed concurrency.  Every fourth request is sampled, and only the greedy
outputs are compared.  Outputs do not stop at end tokens.

For each output that differs, the first difference is printed: both tokens, and the gap of their log-probabilities on
the server without a drafter.  That server also completes the prompt once more at batch size 1.  The exit code is 2 if a
gap is unknown or above --tie, the largest one that counts as rounding.  Outputs are kept in the folder of --out: the
same command continues where it stopped.
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
EVERY = 4  # one request of this many is sampled


class Outputs(NamedTuple):
    """The outputs of one server.

    Attributes:
        texts: The greedy output of each prompt.
        drafts: Counts of draft tokens, including those of sampled requests.
        seconds: Wall time of all requests.
    """

    texts: list[TokenIds]
    drafts: DraftCounters
    seconds: float


class FirstDifference(NamedTuple):
    """Where an output first differs from that of the server without a drafter.

    Attributes:
        prompt: Index of the prompt.
        position: Position in the output.
        token: Token of the server with the drafter.
        expected: Token of the server without one.
        gap: Log-probability of ``expected`` minus that of ``token``; None if one is not among the most probable tokens.
        alone: Token that the server without a drafter generates at batch size 1.
    """

    prompt: int
    position: int
    token: int
    expected: int
    gap: float | None
    alone: int


def requests(prompts: Sequence[TokenIds], length: int) -> list[CompletionRequest]:
    """Return a greedy request for each prompt, and after every third of them a shorter sampled one."""
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
    """Yield the first difference of each output that differs, with its gap on the server without a drafter."""
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add = parser.add_argument
    add("--prompts", type=Path, required=True, help="JSON Lines file, as for `mtpc bench`")
    add("--count", type=int, default=50, help="use this many prompts, spread over the file (default: %(default)s)")
    add("--longest", type=int, default=300, help="skip prompts of more tokens (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="generate this many tokens per prompt (default: %(default)s)")
    add("--concurrency", type=int, default=4, help="number of concurrent requests (default: %(default)s)")
    add("--tie", type=float, default=1e-3, help="largest gap that counts as rounding (default: %(default)s)")
    add("--dtype", default="float32", help="dtype of the target (default: %(default)s)")
    out = "write results to this folder, and continue from the outputs in it (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/greedy-identity"), help=out)
    parser.set_defaults(temperatures=[0.0, SAMPLED.temperature], trees=[], borrow=[], max_children=None)
    return parser.parse_args(given)


def choose(file: Path, target: Path, count: int, longest: int) -> list[TokenIds]:
    """Return at most ``count`` prompts, spread over a file, without those of more than ``longest`` tokens."""
    asked = chain.from_iterable(prompts_of_file(file, target, sys.maxsize).by_kind.values())
    short = [tuple(prompt) for prompt in asked if len(prompt) <= longest]
    if not short:
        raise MTPCError(f"--prompts {file} has no prompt of at most --longest {longest} tokens.")
    count = min(count, len(short))
    return [short[number * len(short) // count] for number in range(count)]


class Comparison:
    """One run of the comparison; the outputs of each server are kept in the folder of --out."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.engine, self.kept = given, find_engine(given.engine), Kept(given.out / "kept")
        must_be_installed(self.engine)
        self.prompts = choose(given.prompts, given.target, given.count, given.longest)
        given.batch_size, given.server_arg = given.concurrency, [f"--dtype={given.dtype}", *given.server_arg]
        self.plain, *self.drafted = contestants(given, self.engine, max(map(len, self.prompts)))
        if not self.drafted:
            raise MTPCError("there is nothing to compare: add --drafter NAME=DIR, --native NAME=DIR or --ngram.")
        self.common = {"engine": self.engine.title, "versions": provenance.collect()["versions"]}
        self.common |= {"target": digest(given.target), "prompts": self.prompts, "tokens": given.max_tokens}
        self.common |= {"arguments": given.server_arg, "concurrency": given.concurrency}

    @contextmanager
    def client(self, one: Contestant) -> Iterator[Client]:
        """Run a server, and yield a client of it."""
        settings = self.engine.as_released(one.settings, [0.0])
        stem = re.sub(r"\W+", "-", one.name)
        with exit_on_signals(), running(self.engine, settings, self.given.out / f"server_{stem}.log") as answer:
            yield Client(answer().url, self.given.concurrency)

    def outputs(self, one: Contestant) -> Outputs:
        """Return the outputs of a server, kept or generated."""
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
        """Return the figures of each drafter with its first differences."""
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
        raise MTPCError(f"an output differs by more than rounding: a gap is above --tie {given.tie}, or unknown.")


def result(name: str, found: Outputs, different: Sequence[FirstDifference], tie: float) -> dict[str, Any]:
    """Return the figures of one drafter with its first differences."""
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
        "acceptance length of drafts": round(found.drafts.acceptance_length, 2),
        "seconds": round(found.seconds),
        DIFFERENCES: [each._asdict() for each in different],
    }


def main(given: Sequence[str] | None = None) -> int:
    """Compare, and return the exit code."""
    return compare(read_arguments(given))


if __name__ == "__main__":
    sys.exit(main())
