"""A whole proof: the server asked, or what it said read; the baseline asked; both judged; the report written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.config_model import declared_json
from mtpc.files.json_file import check_file
from mtpc.lab.console import progress_on
from mtpc.lab.prove.ask import Said, ask, number_of_requests
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.found import Found, among
from mtpc.lab.prove.greedy import compare
from mtpc.lab.prove.joint import joints
from mtpc.lab.prove.noise import keeps_seeds, repeated
from mtpc.lab.prove.page import page
from mtpc.lab.prove.places import looked_at, points_of
from mtpc.lab.prove.plan import Plan
from mtpc.lab.prove.report import Report, tables, verdict_of
from mtpc.lab.text.prompts import read_prompts

Telling = Callable[[str, int | None], Callable[[], None]]  # (what, of how many) -> called after each


def _silent(what: str, total: int | None) -> Callable[[], None]:
    return lambda: None


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    tie: see `mtpc.lab.prove.greedy.Difference`.
    """

    url: str | None
    baseline_url: str | None
    recorded: Path | None
    record: Path | None
    prompts: Path
    target: Path | None
    tie: float
    out: Path

    def __post_init__(self) -> None:
        if (self.url is None) == (self.recorded is None):
            raise MTPCError("give the address of a server, or with --recorded what one has said.")
        if self.baseline_url is None and (self.record is None or self.url is None):
            raise MTPCError(
                "give --baseline-url, the same server without a drafter, or --record FILE to compare with it later."
            )


def prove(request: Request, plan: Plan, console: Console) -> Report | None:
    """Ask, judge, print the tables and write report.json and report.html; None where it is only recorded.

    Errors: `MTPCError` for settings or files that are wrong, or a server that refuses a request or breaks off.
    """
    with _progress(console) as telling:
        said = _said(request, plan, telling)
        if request.baseline_url is None:
            console.print(f"written to {request.record}", highlight=False)
            return None
        report = judge(said, ask_baseline(said, request.baseline_url, telling), request.tie)
    for table in tables(report):
        console.print(table.to_rich())
    request.out.mkdir(parents=True, exist_ok=True)
    (request.out / "report.json").write_text(report.model_dump_json(indent=2) + "\n")
    (request.out / "report.html").write_text(page(report), encoding="utf-8")
    console.print(report.sentence, highlight=False)
    console.print(f"written to {request.out}", highlight=False)
    return report


def _said(request: Request, plan: Plan, telling: Telling) -> Said:
    """By the server, or in the file."""
    if request.recorded is not None:
        check_file(request.recorded)
        expected = f"{request.recorded} does not hold what a server said, as --record writes it"
        return declared_json(Said, request.recorded.read_bytes(), expected)
    assert request.url is not None  # checked when the request was made
    client = Client(request.url, plan.concurrency)
    prompts = tuple(client.tokens(prompt) for prompt, _ in read_prompts(request.prompts, request.target))
    client.told = telling(f"asking {client.url}", number_of_requests(plan, prompts))
    said = ask(client, plan, prompts)
    if request.record is not None:
        request.record.parent.mkdir(parents=True, exist_ok=True)
        request.record.write_text(said.model_dump_json())
    return said


class Baseline(NamedTuple):
    """tests: of what it said itself, which show that it samples what it states."""

    client: Client
    said: Said
    tests: tuple[Found, ...]


def ask_baseline(said: Said, url: str, telling: Telling = _silent) -> Baseline:
    """Ask the same of the server without a drafter.

    Errors: `MTPCError` where it is of another engine than what is compared, refuses a request or breaks off.
    """
    client = Client(url, said.plan.concurrency)
    if client.dialect.name != said.engine:
        raise MTPCError(f"{client.url} runs {client.dialect.name}, but what is compared was said by {said.engine}.")
    plan = said.plan.of_baseline()
    client.told = telling(f"asking {client.url}", number_of_requests(plan, said.prompts))
    expected = ask(client, plan, said.prompts)
    client.told = telling("what the baseline states", None)
    return Baseline(client, expected, _tests(expected, client))


def judge(said: Said, baseline: Baseline, tie: float) -> Report:
    """What a server said, by the baseline."""
    greedy = compare(said, baseline.said, baseline.client, tie)
    tests = _tests(said, baseline.client)
    verdict, sentence = verdict_of(greedy, tests, baseline.tests, said.drafts)
    return Report(
        verdict=verdict,
        sentence=sentence,
        url=said.url,
        baseline_url=baseline.client.url,
        engine=said.engine,
        plan=said.plan,
        prompts=len(said.prompts),
        tokens=said.number,
        greedy=greedy,
        tests=tests,
        baseline=baseline.tests,
        seeds=keeps_seeds(said),
        baseline_seeds=keeps_seeds(baseline.said),
        drafts=said.drafts,
        provenance=provenance.collect(seed=said.plan.seed),
    )


def _tests(said: Said, baseline: Client) -> tuple[Found, ...]:
    """All of what a server said when it sampled."""
    points = [points_of(said, sampling, baseline) for sampling in said.plan.samplings]
    return among([*joints(said, baseline), *looked_at(points), *repeated(said, baseline)])


@contextmanager
def _progress(console: Console) -> Iterator[Telling]:
    with progress_on(console) as progress:

        def telling(what: str, total: int | None) -> Callable[[], None]:
            bar = progress.add_task(what, total=total)
            return lambda: progress.advance(bar)

        yield telling
