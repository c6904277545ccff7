"""How SGLang is started, and the counts in its answers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.bench.run import run_plan
from mtpc.lab.bench.settings import BenchPlan
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.engine import ServerSettings
from mtpc.lab.servers.load import CompletionParams
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.server import Server
from mtpc.lab.servers.sglang_engine import (
    SGLANG,
    flush_cache,
    ngram_obstacle,
    read_details,
    sglang_command,
    sglang_environment,
)
from tests.mtpc.lab.servers.fake_server import serving
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_hybrid import make_hybrid
from tests.support.random_models import make_drafter, make_target

SHIPPED = Path(__file__).parents[4] / "weights" / "byte-mtpc-hmm-n8"
SETTINGS = ServerSettings(Path("target"), max_batch=4, max_length=512)


def details(accepted: list[int], drafts: int) -> dict[str, object]:
    """Return SGLang's details of a request; accepted: the number of accepted draft tokens of each step."""
    histogram = [accepted.count(number) for number in range(max(accepted) + 1)]
    return {
        "spec_verify_ct": len(accepted),
        "spec_num_proposed_drafts": drafts * len(accepted),
        "spec_num_correct_drafts": sum(accepted),
        "spec_correct_drafts_histogram": histogram,
    }


def test_the_histogram_becomes_counts_by_position() -> None:
    accepted = [0, 1, 3, 3, 2]
    counters = read_details({"choices": [], "sglext": {"spec_tokens_details": details(accepted, 7)}})
    at = tuple(float(sum(number > position for number in accepted)) for position in range(3))
    assert counters == DraftCounters(5, 35, 9, at)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"text": "x"}]},
        {"sglext": None},
        {"sglext": {"cached_tokens_details": {}}},
        {"sglext": {"spec_tokens_details": {"spec_verify_ct": 0, "spec_correct_drafts_histogram": []}}},
    ],
)
def test_other_events_count_nothing(event: dict[str, object]) -> None:
    assert read_details(event) is None


def test_counts_come_from_the_answers() -> None:
    with serving() as (url, state):
        load = SGLANG.load(url, "some-model", ["abc", "de"], CompletionParams(6, 0.0), 2)
    assert [body["return_spec_tokens_details"] for body in state.bodies] == [True, True]
    assert load.drafts == DraftCounters(12, 12, 6, (6,))


def test_a_measurement_needs_no_page_of_metrics() -> None:
    plan = BenchPlan((2,), (0.0,), max_tokens=4, rounds=1, requests=2)
    with serving(drafting=False) as (plain, _), serving() as (drafted, state):
        servers = {"no drafter": Server(plain, []), "drafter": Server(drafted, [])}
        (point,) = run_plan(SGLANG, servers, ["x"], plan, lambda *_: None)
    assert (point.drafts.drafts, point.drafts.accepted) == (16, 8)
    assert point.without[0].drafts == NO_DRAFTS
    assert state.pages == ["/v1/models"]


def test_answers_of_the_warm_up_are_forgotten_before_a_measurement() -> None:
    plan, seen = BenchPlan((1,), (0.0,), max_tokens=4, rounds=2, requests=2), []
    with serving() as (url, _), serving() as (own, state):
        forgets = Server(own, [], clear_history=lambda url: seen.append((url, len(state.bodies))))
        servers = {"no drafter": Server(url, []), "drafter": Server(url, []), "n-gram": forgets}
        run_plan(SGLANG, servers, ["x"], plan, lambda *_: None)
    assert seen == [(own, 1), (own, 4)]  # one to warm up, two that are measured


def test_a_server_that_does_not_forget_is_not_measured() -> None:
    with serving() as (url, state), pytest.raises(MTPCError, match=r"flush_cache.*404"):
        flush_cache(url)
    assert state.pages == ["/flush_cache?timeout=10"]


def test_the_two_command_lines_differ_only_in_the_drafter() -> None:
    plain = sglang_command(SETTINGS, 1)
    drafted = sglang_command(replace(SETTINGS, drafter=SHIPPED, num_drafts=7), 1)
    assert drafted[: len(plain)] == plain
    expected = f"--speculative-algorithm MTPC --speculative-draft-model-path {SHIPPED} --speculative-num-steps 7"
    assert " ".join(drafted[len(plain) :]) == expected


def test_the_engines_own_ngram_drafter() -> None:
    command = " ".join(sglang_command(replace(SETTINGS, ngram=SGLANG.ngram), 1))
    # The defaults of SGLang: 12 tokens verified, a trie of depth 18.
    assert "--speculative-algorithm NGRAM --speculative-num-draft-tokens 12" in command
    assert command.endswith("--speculative-ngram-max-trie-depth 18")


@pytest.mark.parametrize(
    ("ngram", "temperatures", "missing", "gpu", "reason"),
    [
        (SGLANG.ngram, (0.0,), None, False, None),
        (SGLANG.ngram, (0.0, 1.0), None, True, None),
        (SGLANG.ngram, (0.0, 1.0), None, False, "the most probable tokens at every temperature"),
        (SGLANG.ngram, (0.0,), "ninja", False, "ninja is not installed"),
        (SGLANG.ngram, (1.0,), "c++", True, "c++ is not installed"),
        (Ngram(2, 4, 5), (0.0,), None, True, "MIN of --ngram must be 1, not 2"),
    ],
)
def test_where_sglangs_ngram_drafter_cannot_be_measured(
    ngram: Ngram,
    temperatures: tuple[float, ...],
    missing: str | None,
    gpu: bool,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None if name == missing else f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    found = ngram_obstacle(ngram, temperatures)
    assert found is reason is None or (reason or "-") in (found or "")


@pytest.mark.parametrize(
    ("make", "algorithm"), [(make_drafter, "MTPC"), (make_fastmtp, "FASTMTP"), (make_hybrid, "HYBRID")]
)
def test_the_algorithm_is_the_familys(make: Callable[[Path, Path], Path], algorithm: str, tmp_path: Path) -> None:
    drafter = make(tmp_path / "drafter", make_target(tmp_path / "target"))
    command = sglang_command(replace(SETTINGS, drafter=drafter, num_drafts=3), 1)
    assert command[command.index("--speculative-algorithm") + 1] == algorithm


def test_arguments_of_the_user_come_last() -> None:
    assert sglang_command(replace(SETTINGS, extra=("--dtype", "float32")), 1)[-2:] == ["--dtype", "float32"]


@pytest.mark.parametrize("gpu", [True, False])
def test_only_without_a_gpu_is_the_cpu_engine_asked_for(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert ("--device" in sglang_command(SETTINGS, 1)) is not gpu
    environment = sglang_environment(SETTINGS)
    assert ("SGLANG_USE_CPU_ENGINE" in environment) is not gpu
    assert environment.get("OMP_NUM_THREADS") == (None if gpu else "1")
