"""What was found: the whole of it, and in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mtpc.files.config_model import Strict
from mtpc.lab.prove.found import Found
from mtpc.lab.prove.greedy import Greedy
from mtpc.lab.prove.places import AT_PLACES
from mtpc.lab.prove.plan import Plan
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.table import Table

MOST_ROWS = 20
Verdict = Literal["the same", "not the same", "nothing proved"]


class Report(Strict):
    """report.json.

    baseline: the same tests of the baseline itself, which show that it samples what it states.  seeds, baseline_seeds:
    whether a request with a seed was answered the same twice.  drafts: what the server counted meanwhile.
    """

    verdict: Verdict
    sentence: str
    url: str
    baseline_url: str
    engine: str
    plan: Plan
    prompts: int
    tokens: int
    greedy: Greedy
    tests: tuple[Found, ...]
    baseline: tuple[Found, ...]
    seeds: bool
    baseline_seeds: bool
    drafts: DraftCounters
    provenance: dict[str, Any]


def verdict_of(
    greedy: Greedy, tests: Sequence[Found], baseline: Sequence[Found], drafts: DraftCounters
) -> tuple[Verdict, str]:
    """Of the whole, and why."""
    if any(one.wrong for one in baseline):
        worst = min(baseline, key=lambda one: one.adjusted)
        found = f"the baseline itself does not sample what it states ({worst.test}, {worst.of})"
        return "nothing proved", f"Nothing is proved: {found}."
    wrong = sorted((one for one in tests if one.wrong), key=lambda one: one.adjusted)
    if wrong or greedy.wrong:
        reasons = [f"{len(greedy.wrong)} greedy tokens are others"] if greedy.wrong else []
        reasons += [f"{one.test} ({one.of}) by a chance of {one.adjusted:.1g}" for one in wrong[:3]]
        return "not the same", f"The server does not say what the baseline says: {'; '.join(reasons)}."
    told = "" if drafts.drafts else " It counted no drafts: of a drafter this proves nothing."
    judged = [one for one in tests if one.p is not None]
    found = f"{greedy.tokens} greedy tokens are the same and {len(judged)} tests of sampled ones found nothing"
    return "the same", f"The server says what the baseline says: {found}.{told}"


def tables(report: Report) -> list[Table]:
    """For the terminal and the page."""
    found = [tests_table("Sampled texts", report.tests), tests_table("The baseline itself", report.baseline)]
    rows = [
        [
            str(one.prompt),
            "alone" if one.alone else "among others",
            str(one.place),
            str(one.said),
            str(one.expected),
            "far" if one.gap is None else f"{one.gap:.2g}",
            "rounding, perhaps" if one.rounding else "wrong",
        ]
        for one in report.greedy.differences
    ]
    if rows:
        columns = ["prompt", "asked", "place", "said", "most probable", "gap in log-probability", ""]
        found.append(Table("Greedy tokens that are not the baseline's most probable ones", columns, rows[:MOST_ROWS]))
    drafts = report.drafts
    if drafts.drafts:
        pairs = zip(drafts.marginal_rates, drafts.conditional_rates, strict=True)
        rates = [[str(i), f"{all_:.1%}", f"{before:.1%}"] for i, (all_, before) in enumerate(pairs, 1)]
        title = f"Acceptance, {drafts.acceptance_length:.2f} tokens a step"
        found.append(Table(title, ["draft", "of all drafts", "of those accepted so far"], rates))
    return found


def tests_table(title: str, tests: Sequence[Found]) -> Table:
    """Tests, of places only those that found something and the nearest of the others."""
    at_places = sorted((one for one in tests if one.test == AT_PLACES), key=lambda one: (one.adjusted, one.p or 1))
    shown = [one for one in tests if one.test != AT_PLACES or one.wrong or one is at_places[0]]
    rows = [
        [
            one.test,
            one.of,
            str(one.samples),
            str(one.cells),
            "-" if one.p is None else f"{one.p:.2g}",
            "not judged" if one.p is None else f"{one.adjusted:.2g}{' wrong' if one.wrong else ''}",
            "-" if one.sees is None else f"{one.sees:.1%}",
        ]
        for one in shown
    ]
    title = f"{title}: {len(tests)} tests, of single places the worst"
    return Table(title, ["what", "temperature/top-k/top-p", "samples", "cells", "p", "among all", "would see"], rows)
