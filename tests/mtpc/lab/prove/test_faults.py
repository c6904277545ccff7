"""`mtpc prove` finds a server that verifies drafts wrongly, whatever is wrong, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from typer.testing import CliRunner

from mtpc.lab.cli.main import app
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.command import Baseline, compare, record_baseline
from mtpc.lab.prove.greedy import Difference, GreedyComparison
from mtpc.lab.prove.plan import ProvePlan, parse_samplings
from mtpc.lab.prove.recording import Recording, record
from mtpc.lab.prove.report import Report, verdict_of
from mtpc.lab.prove.significance import SignificanceTest
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from tests.support.often import each_of
from tests.support.table_model import Fault, TableModel
from tests.support.table_server import serving

PLAN = ProvePlan(
    samplings=parse_samplings("1,0.7/10/0.9"), samples=1000, texts=300, length=16, greedy=30, repeats=4, concurrency=1
)
PROMPTS = tuple(tuple((7 * i + j) % 40 for j in range(4 + i % 3)) for i in range(10))


class Sought(NamedTuple):
    """The sampling and the texts that a fault is sought with, and what finds it at least."""

    sampling: str
    texts: int
    finds: set[str]


FAULTS: dict[Fault, Sought] = {
    "misstated draft": Sought("1", 1000, {"every token"}),
    "wrong temperature": Sought("0.7/10/0.9", 600, {"every token"}),
    "top-p ignored": Sought("0.7/10/0.9", 300, {"outside of top-k and top-p"}),
    "bonus from the wrong row": Sought("1", 300, {"every token", "tokens by position"}),
    "frozen noise": Sought("1", 300, {"first tokens", "repeated requests"}),
}


@pytest.fixture(scope="module")
def baseline() -> Iterator[Baseline]:
    """The server without drafts."""
    with serving(TableModel(drafts=False)) as url:
        yield record_baseline(recording_at(url), url)


def recording_at(url: str, plan: ProvePlan = PLAN) -> Recording:
    """By a server."""
    return record(Client(url, plan.concurrency), plan, PROMPTS)


def report_of(model: TableModel, baseline: Baseline, plan: ProvePlan = PLAN) -> Report:
    """On a server of this model."""
    with serving(model) as url:
        return compare(recording_at(url, plan), baseline, 0.25)


def test_the_faults_are_all_sought() -> None:
    assert set(FAULTS) == set(get_args(Fault))


@pytest.mark.parametrize("fault", each_of(FAULTS, ("wrong temperature", "bonus from the wrong row", "frozen noise")))
def test_a_fault_is_found(fault: Fault, baseline: Baseline) -> None:
    sampling, texts, finds = FAULTS[fault]
    plan = PLAN.model_copy(update={"samplings": parse_samplings(sampling), "texts": texts})
    report = report_of(TableModel(fault), baseline, plan)
    assert report.verdict == "not the same"
    found = {one.test for one in report.tests if one.wrong}
    assert found >= finds
    assert bool(report.greedy.wrong) == (fault == "bonus from the wrong row")


def test_an_honest_server_passes(baseline: Baseline) -> None:
    report = report_of(TableModel(), baseline)
    assert report.verdict == "the same", report.sentence
    assert report.greedy.same == report.greedy.texts
    assert report.seeds and report.baseline_seeds
    assert report.drafts.drafts > 1000
    assert 0.2 < report.drafts.marginal_rates[0] < 0.95
    assert report.tests[0].sees is not None and 0.05 < report.tests[0].sees < 0.2


@pytest.mark.thorough
def test_a_baseline_that_does_not_sample_what_it_states_proves_nothing() -> None:
    with serving(TableModel("wrong temperature")) as url:
        recording = recording_at(url, PLAN.model_copy(update={"samplings": PLAN.samplings[:1]}))
        report = compare(recording, record_baseline(recording, url), 0.25)
    assert report.verdict == "nothing proved"


def test_the_verdict() -> None:
    """Differences that rounding explains do not count; without draft tokens only a difference is a result."""
    near = Difference(prompt=0, sequential=True, position=3, generated=5, expected=7, gap=0.1, rounding=True)
    far = near.model_copy(update={"gap": None, "rounding": False})
    right = SignificanceTest(test="every token", of="1/0/1", samples=100, cells=16, p=0.5)
    wrong, drafts = right.model_copy(update={"adjusted": 1e-4}), DraftCounters(9, 27, 9, (9.0,))
    verdicts = {
        name: verdict_of(
            GreedyComparison(texts=2, same=1, tokens=50, differences=greedy), (right, *tests), (own,), counted
        )
        for name, (greedy, tests, own, counted) in {
            "right": ((near,), (), right, drafts),
            "undrafted": ((near,), (), right, NO_DRAFTS),
            "undrafted, greedy": ((far,), (), right, NO_DRAFTS),
            "greedy": ((near, far), (), right, drafts),
            "sampled": ((), (wrong,), right, drafts),
            "baseline": ((far,), (wrong,), wrong, drafts),
        }.items()
    }
    assert {name: verdict for name, (verdict, _) in verdicts.items()} == {
        "right": "the same",
        "undrafted": "nothing proved",
        "undrafted, greedy": "not the same",
        "greedy": "not the same",
        "sampled": "not the same",
        "baseline": "nothing proved",
    }
    assert "no drafter was tested. Start the server with its drafter" in verdicts["undrafted"][1]
    assert "1 greedy tokens" in verdicts["greedy"][1] and "every token" in verdicts["sampled"][1]


def few_requests(folder: Path) -> list[str]:
    """Return options for a short run."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("some words", "others", "and more")))
    return ["--prompts", str(prompts), "--samples", "400", "--texts", "20", "--length", "8", "--samplings", "1"]


def test_the_command(tmp_path: Path) -> None:
    """Recorded by a server, then compared with the other; SGLang's way of asking."""
    record, out, few = tmp_path / "recording.json", tmp_path / "out", few_requests(tmp_path)
    with serving(TableModel(), sglang=True) as url:
        first = CliRunner().invoke(app, ["prove", url, *few, "--record", str(record)])
        assert first.exit_code == 0, first.stderr
    recorded = ["prove", "--recorded", str(record), "--out", str(out)]
    with serving(TableModel(drafts=False), sglang=True) as url:
        assert CliRunner().invoke(app, [*recorded, "--baseline-url", url]).exit_code == 0
    report = Report.model_validate_json((out / "report.json").read_bytes())
    assert report.verdict == "the same" and report.engine == "sglang"
    page = (out / "report.html").read_text()
    assert report.sentence.split(":")[0] in page and "data:image/png;base64," in page
    with serving(TableModel(drafts=False)) as url:
        other = CliRunner().invoke(app, [*recorded, "--baseline-url", url])
    assert other.exit_code == 2 and "runs vllm" in other.stderr
    with serving(TableModel(), sglang=True) as url:
        other = CliRunner().invoke(app, [*recorded, "--baseline-url", url])
    assert other.exit_code == 2 and "drafts as well: start the baseline without a drafter" in other.stderr


def test_exchanged_addresses_are_found_before_anything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtpc.lab.prove.command.record", lambda *_: pytest.fail("the server is recorded"))
    with serving(TableModel(drafts=False)) as url, serving(TableModel()) as baseline:
        result = CliRunner().invoke(app, ["prove", url, "--baseline-url", baseline, *few_requests(tmp_path)])
    assert result.exit_code == 2 and "exchange the two addresses" in result.stderr


@pytest.mark.parametrize("sglang", [False, True])
def test_a_server_that_was_started_without_its_drafter_proves_nothing(sglang: bool, tmp_path: Path) -> None:
    options = [*few_requests(tmp_path), "--out", str(tmp_path / "out")]
    plain = partial(serving, TableModel(drafts=False), sglang=sglang)
    with plain() as url, plain() as baseline:
        result = CliRunner().invoke(app, ["prove", url, "--baseline-url", baseline, *options])
    assert result.exit_code == 1
    assert "Nothing is proved: the server counted no draft tokens" in result.stdout.replace("\n", " ")
    assert Report.model_validate_json((tmp_path / "out" / "report.json").read_bytes()).verdict == "nothing proved"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "give either the URL of a server, or --recorded"),
        (["http://127.0.0.1:1"], "--baseline-url is missing"),
        (["--recorded", "nowhere", "--baseline-url", "http://127.0.0.1:1"], "nowhere is missing"),
        (["http://127.0.0.1:1", "--baseline-url", "http://127.0.0.1:1"], "does not answer"),
        (["http://127.0.0.1:1", "--samplings", "1/2/3/4"], "temperature/top-k/top-p"),
        (["http://127.0.0.1:1", "--samplings", "0"], "temperature/top-k/top-p"),
        (["http://127.0.0.1:1", "--samplings", "1/20"], "is wrong at 'top_k'"),
    ],
)
def test_one_sentence(line: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["prove", *line])
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.count("\n") == 1
