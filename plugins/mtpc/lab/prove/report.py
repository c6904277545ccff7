"""The report of `mtpc prove`: the conclusion in one sentence, and the tables behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mtpc.files.config_model import Strict
from mtpc.lab.prove.greedy import GreedyComparison
from mtpc.lab.prove.plan import ProvePlan
from mtpc.lab.prove.significance import SignificanceTest
from mtpc.lab.prove.uniformity import BY_POSITION
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.table import Table

MAX_ROWS = 20
TO_DRAFT = "Start the server with its drafter, and vLLM without --disable-log-stats."
Verdict = Literal["the same", "not the same", "nothing proved"]


class Report(Strict):
    """The content of report.json.

    Attributes:
        verdict: Whether the server, with a drafter, has the baseline's output distribution.
        sentence: The same with its reason.
        url: Address of the server.
        baseline_url: Address of the baseline.
        engine: Name of the engine of both.
        plan: What was requested from the server.
        prompts: Number of prompts.
        tokens: Number of tokens that the server generated.
        greedy: Comparison of greedy outputs.
        tests: Tests of the server's sampled outputs.
        baseline: The same tests of the baseline, which show that it samples from the distribution that it states.
        seeds: Whether the server repeated an output with the same seed.
        baseline_seeds: Whether the baseline did.
        drafts: The server's counts of draft tokens.
        provenance: Command, versions and hardware.
    """

    verdict: Verdict
    sentence: str
    url: str
    baseline_url: str
    engine: str
    plan: ProvePlan
    prompts: int
    tokens: int
    greedy: GreedyComparison
    tests: tuple[SignificanceTest, ...]
    baseline: tuple[SignificanceTest, ...]
    seeds: bool
    baseline_seeds: bool
    drafts: DraftCounters
    provenance: dict[str, Any]


def verdict_of(
    greedy: GreedyComparison,
    tests: Sequence[SignificanceTest],
    baseline: Sequence[SignificanceTest],
    drafts: DraftCounters,
) -> tuple[Verdict, str]:
    """Return the conclusion, and a sentence with its reason.

    Args:
        greedy: Comparison of greedy outputs.
        tests: Tests of the server, corrected for their number.
        baseline: Tests of the baseline, likewise.
        drafts: The server's counts of draft tokens.
    """
    if any(one.wrong for one in baseline):
        worst = min(baseline, key=lambda one: one.adjusted)
        reason = f"the baseline does not sample from the distribution that it states ({worst.test}, {worst.of})"
        return "nothing proved", f"Nothing is proved: {reason}."
    wrong = sorted((one for one in tests if one.wrong), key=lambda one: one.adjusted)
    if wrong or greedy.wrong:
        reasons = [f"{len(greedy.wrong)} greedy tokens differ"] if greedy.wrong else []
        reasons += [f"{one.test} ({one.of}) with adjusted p = {one.adjusted:.1g}" for one in wrong[:3]]
        return "not the same", f"The output of the server differs from that of the baseline: {'; '.join(reasons)}."
    if not drafts.draft_tokens:
        reason = "the server counted no draft tokens, so no drafter was tested"
        return "nothing proved", f"Nothing is proved: {reason}. {TO_DRAFT}"
    tested = [one for one in tests if one.p is not None]
    found = f"{greedy.tokens} greedy tokens are equal, and {len(tested)} tests of sampled output found no difference"
    return "the same", f"The output of the server matches that of the baseline: {found}."


def tables(report: Report) -> list[Table]:
    """Return the tables for the terminal and the page: tests, greedy differences and acceptance rates."""
    found = [tests_table("Sampled outputs", report.tests), tests_table("The baseline itself", report.baseline)]
    rows = [
        [
            str(one.prompt),
            "sequential" if one.sequential else "concurrent",
            str(one.position),
            str(one.generated),
            str(one.expected),
            "unknown" if one.gap is None else f"{one.gap:.2g}",
            "possibly rounding" if one.rounding else "wrong",
        ]
        for one in report.greedy.differences
    ]
    if rows:
        columns = ["prompt", "request", "position", "generated", "most probable", "gap in log-probability", ""]
        found.append(Table("Greedy tokens that are not the baseline's most probable ones", columns, rows[:MAX_ROWS]))
    drafts = report.drafts
    if drafts.drafts:
        pairs = zip(drafts.marginal_rates, drafts.conditional_rates, strict=True)
        rates = [
            [str(i), f"{marginal:.1%}", f"{conditional:.1%}"] for i, (marginal, conditional) in enumerate(pairs, 1)
        ]
        title = f"Acceptance rate by position; acceptance length {drafts.acceptance_length:.2f}"
        found.append(Table(title, ["position", "marginal", "conditional"], rates))
    return found


def tests_table(title: str, tests: Sequence[SignificanceTest]) -> Table:
    """Return tests as a table; of the tests by position only the rejecting ones and the one with the lowest p-value."""
    by_position = sorted((one for one in tests if one.test == BY_POSITION), key=lambda one: (one.adjusted, one.p or 1))
    shown = [one for one in tests if one.test != BY_POSITION or one.wrong or one is by_position[0]]
    rows = [
        [
            one.test,
            one.of,
            str(one.samples),
            str(one.cells),
            "-" if one.p is None else f"{one.p:.2g}",
            "not tested" if one.p is None else f"{one.adjusted:.2g}{' wrong' if one.wrong else ''}",
            "-" if one.sees is None else f"{one.sees:.1%}",
        ]
        for one in shown
    ]
    title = f"{title}: {len(tests)} tests, of single positions the lowest p"
    columns = ["test", "temperature/top-k/top-p", "samples", "cells", "p", "adjusted p", "detects"]
    return Table(title, columns, rows)
