"""The whole of `mtpc prove`: record the server or read a recording, record the baseline, compare, and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.config_model import validated_json
from mtpc.files.json_file import check_file
from mtpc.lab.console import progress_on
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import CompletionRequest, TokenIds
from mtpc.lab.prove.greedy import compare_greedy
from mtpc.lab.prove.html_report import render_html
from mtpc.lab.prove.joint_distribution import joint_tests
from mtpc.lab.prove.plan import GREEDY, ProvePlan
from mtpc.lab.prove.recording import Recording, count_requests, record
from mtpc.lab.prove.repetition import repetition_tests, seeds_repeat
from mtpc.lab.prove.report import Report, tables, verdict_of
from mtpc.lab.prove.settings import ProveOptions
from mtpc.lab.prove.significance import SignificanceTest, adjust_for_all
from mtpc.lab.prove.uniformity import token_points, uniformity_tests
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.text.prompts import read_prompts

AddTask = Callable[[str, int | None], Callable[[], None]]  # (description, total) -> called after each response


def _no_progress(description: str, total: int | None) -> Callable[[], None]:
    return lambda: None


def prove(options: ProveOptions, plan: ProvePlan, console: Console) -> Report | None:
    """Record and compare the servers, print the tables, and write report.json and report.html.

    Args:
        options: The user's options.
        plan: What is requested; a recording has its own.
        console: Where tables and progress are printed.

    Returns:
        The report; None where the server was only recorded.

    Raises:
        MTPCError: A setting or file is wrong, or a server refuses a request or breaks off.
    """
    with _progress(console) as add_task:
        recording = _recording(options, plan, add_task)
        if options.baseline_url is None:
            console.print(f"written to {options.record}", highlight=False)
            return None
        report = compare(recording, record_baseline(recording, options.baseline_url, add_task), options.tie)
    for table in tables(report):
        console.print(table.to_rich())
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.json").write_text(report.model_dump_json(indent=2) + "\n")
    (options.out / "report.html").write_text(render_html(report), encoding="utf-8")
    console.print(report.sentence, highlight=False)
    console.print(f"written to {options.out}", highlight=False)
    return report


def _recording(options: ProveOptions, plan: ProvePlan, add_task: AddTask) -> Recording:
    """Read the recording, or record the server."""
    if options.recorded is not None:
        check_file(options.recorded)
        expected = f"--recorded is {options.recorded}, which is not a file that --record wrote"
        return validated_json(Recording, options.recorded.read_bytes(), expected)
    assert options.url is not None  # checked by ProveOptions
    client = Client(options.url, plan.concurrency)
    prompts = tuple(client.tokens(prompt) for prompt, _ in read_prompts(options.prompts, options.target))
    if options.baseline_url is not None:
        baseline_client(options.baseline_url, client.api.name, plan, prompts[0])  # before the long part
    client.on_response = add_task(f"recording {client.url}", count_requests(plan, prompts))
    recording = record(client, plan, prompts)
    if options.record is not None:
        options.record.parent.mkdir(parents=True, exist_ok=True)
        options.record.write_text(recording.model_dump_json())
    return recording


def baseline_client(url: str, engine: str, plan: ProvePlan, prompt: TokenIds) -> Client:
    """Return a client of the baseline, after one request to it.

    Args:
        url: Address of the baseline.
        engine: Engine of the server to compare.
        plan: The requests to that server.
        prompt: One of their prompts.

    Raises:
        MTPCError: The baseline runs another engine, drafts as well, refuses the request or breaks off.
    """
    client = Client(url, plan.concurrency)
    if client.api.name != engine:
        raise MTPCError(
            f"--baseline-url is {client.url}, which runs {client.api.name}, but the server to compare runs {engine}: "
            "both must run the same engine."
        )
    before = client.counters()
    first = client.complete([CompletionRequest(prompt, plan.of_baseline().greedy, GREEDY)], concurrency=1)
    _check_drafts_nothing(client, first.drafts + client.counters().since(before))
    return client


class Baseline(NamedTuple):
    """The server without a drafter.

    Attributes:
        client: Client of the running server.
        recording: Its outputs.
        tests: Tests of these outputs, which show that it samples from the distribution that it states.
    """

    client: Client
    recording: Recording
    tests: tuple[SignificanceTest, ...]


def record_baseline(recording: Recording, url: str, add_task: AddTask = _no_progress) -> Baseline:
    """Send the baseline the requests of a recording, with fewer samples, and test its outputs.

    Args:
        recording: Outputs of the server to test.
        url: Address of the baseline.
        add_task: Starts a progress bar.

    Returns:
        The baseline and its outputs.

    Raises:
        MTPCError: As `baseline_client`.
    """
    client = baseline_client(url, recording.engine, recording.plan, recording.prompts[0])
    plan = recording.plan.of_baseline()
    client.on_response = add_task(f"recording {client.url}", count_requests(plan, recording.prompts))
    expected = record(client, plan, recording.prompts)
    _check_drafts_nothing(client, expected.drafts)
    client.on_response = add_task("log-probabilities of the baseline", None)
    return Baseline(client, expected, _tests(expected, client))


def _check_drafts_nothing(baseline: Client, drafts: DraftCounters) -> None:
    """Check that the baseline runs without a drafter, or raise `MTPCError`: two drafters may err alike."""
    if drafts.draft_tokens:
        raise MTPCError(
            f"--baseline-url is {baseline.url}, which drafts as well: start the baseline without a drafter, or "
            "exchange the two addresses."
        )


def compare(recording: Recording, baseline: Baseline, tie: float) -> Report:
    """Compare the outputs of a server with the baseline.

    Args:
        recording: Outputs of the server.
        baseline: The baseline, which still runs.
        tie: Largest gap of log-probabilities that rounding may explain.

    Returns:
        The report.
    """
    greedy = compare_greedy(recording, baseline.recording, baseline.client, tie)
    tests = _tests(recording, baseline.client)
    verdict, sentence = verdict_of(greedy, tests, baseline.tests, recording.drafts)
    return Report(
        verdict=verdict,
        sentence=sentence,
        url=recording.url,
        baseline_url=baseline.client.url,
        engine=recording.engine,
        plan=recording.plan,
        prompts=len(recording.prompts),
        tokens=recording.token_count,
        greedy=greedy,
        tests=tests,
        baseline=baseline.tests,
        seeds=seeds_repeat(recording),
        baseline_seeds=seeds_repeat(baseline.recording),
        drafts=recording.drafts,
        provenance=provenance.collect(seed=recording.plan.seed),
    )


def _tests(recording: Recording, baseline: Client) -> tuple[SignificanceTest, ...]:
    """Return all tests of sampled outputs."""
    points = [token_points(recording, sampling, baseline) for sampling in recording.plan.samplings]
    tests = [*joint_tests(recording, baseline), *uniformity_tests(points), *repetition_tests(recording, baseline)]
    return adjust_for_all(tests)


@contextmanager
def _progress(console: Console) -> Iterator[AddTask]:
    with progress_on(console) as progress:

        def add_task(description: str, total: int | None) -> Callable[[], None]:
            bar = progress.add_task(description, total=total)
            return lambda: progress.advance(bar)

        yield add_task
