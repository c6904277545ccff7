"""Requests at a fixed concurrency, against a server that speaks as vLLM's does."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.bench.run import choose_prompts, run_plan
from mtpc.lab.bench.settings import BenchPlan
from mtpc.lab.servers import sglang_engine, vllm_engine
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.engine_registry import find_engine
from mtpc.lab.servers.load import CompletionParams, Load, ResponseCounters, TimedCompletion, run_load, run_offline
from mtpc.lab.servers.server import Server
from tests.mtpc.lab.servers.fake_server import serving

SAMPLING = CompletionParams(max_tokens=3, temperature=0.5)


def test_answers_come_in_the_order_of_the_prompts() -> None:
    with serving() as (url, state):
        load = run_load(url, "some-model", ["abc", "de", "f"], SAMPLING, concurrency=2)
    assert [completion.text for completion in load.completions] == ["ABC", "DED", "FFF"]
    assert load.tokens == 9
    assert state.bodies[0]["temperature"] == 0.5
    assert state.bodies[0]["ignore_eos"] is True
    for completion in load.completions:
        assert 0 < completion.first <= completion.seconds <= load.seconds


@pytest.mark.parametrize("concurrency", [1, 3])
def test_so_many_requests_at_a_time(concurrency: int) -> None:
    with serving(together=concurrency) as (url, state):
        load = run_load(url, "some-model", ["abc"] * 9, SAMPLING, concurrency)
    assert state.most == concurrency
    assert 0 < load.in_flight <= concurrency


def test_requests_in_flight_are_their_seconds_by_those_of_the_run() -> None:
    answered = tuple(TimedCompletion("abc", "ABC", 3, 0.5, seconds) for seconds in (2.0, 1.0, 3.0))
    assert Load(answered, 4.0).in_flight == 1.5
    assert [answer.per_token for answer in answered] == [0.75, 0.25, 1.25]


def test_a_refused_request_ends_in_one_sentence() -> None:
    with serving() as (url, _), pytest.raises(MTPCError, match=r"status 400.*the prompt is refused"):
        run_load(url, "some-model", ["abc", "refuse this"], SAMPLING, 1)


def test_an_error_in_the_middle_of_a_stream_is_not_taken_for_the_end() -> None:
    with serving() as (url, _), pytest.raises(MTPCError, match="out of memory"):
        run_load(url, "some-model", ["break off"], SAMPLING, 1)


def test_an_error_of_our_own_code_is_not_taken_for_one_of_the_server() -> None:
    def read(event: dict[str, Any]) -> DraftCounters | None:
        raise LookupError("ours")

    with serving() as (url, _), pytest.raises(LookupError, match="ours"):
        run_load(url, "some-model", ["abc"], SAMPLING, 1, ResponseCounters({}, read))


def test_a_server_that_goes_away_in_the_middle_of_a_stream() -> None:
    with serving() as (url, _), pytest.raises(MTPCError, match="broke off a request"):
        run_load(url, "some-model", ["vanish"], SAMPLING, 1)


def test_each_token_is_timed_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock shows how many tokens were sent; the next is sent only when it has been read for the one before."""
    sent, clock_was_read = 5, threading.Event()

    def read_clock() -> float:
        now = float(sent)
        clock_was_read.set()
        return now

    def wait_for_clock() -> None:
        nonlocal sent
        assert clock_was_read.wait(60), f"token {sent - 5} was not timed before the next one came"
        clock_was_read.clear()
        sent += 1

    monkeypatch.setattr("mtpc.lab.servers.load.time", SimpleNamespace(perf_counter=read_clock))
    with serving(wait=wait_for_clock) as (url, _):
        (completion,) = run_load(url, "some-model", ["abc"], SAMPLING, 1).completions
    assert (completion.first, completion.seconds, completion.per_token) == (1, 3, 1)


def test_nobody_there() -> None:
    with serving() as (url, _):
        pass
    with pytest.raises(MTPCError, match="broke off"):
        run_load(url, "some-model", ["abc"], SAMPLING, 1)


def test_a_plan_measures_all_servers_the_same_number_of_times() -> None:
    plan = BenchPlan(batch_sizes=(1, 2), temperatures=(0.0,), max_tokens=5, rounds=2, requests=4)
    reported: list[str] = []
    with serving(False) as (plain, seen), serving() as (drafted, seen_too), serving(False) as (third, seen_third):
        points = run_plan(
            find_engine("vllm"),
            {"no drafter": Server(plain, []), "drafter": Server(drafted, []), "n-gram": Server(third, [])},
            ["one", "two"],
            plan,
            lambda name, _: reported.append(name),
        )
    assert len(reported) == plan.measurements(3) == 12
    assert reported[:3] == [f"temperature 0, batch 1, {name}" for name in ("no drafter", "drafter", "n-gram")]
    assert len(seen.bodies) == len(seen_too.bodies) == len(seen_third.bodies)
    assert [point.batch_size for point in points] == [1, 2]
    # The counters of the warm-up are not part of a measurement: 4 requests of 5 "drafts", half of them accepted.
    assert [m.drafts.drafts for m in points[0].with_drafter] == [20, 20]
    assert points[0].drafts.acceptance_length == pytest.approx(1.5, abs=0.05)
    assert points[1].identical == 1
    # One that finds nothing to draft is measured all the same.
    assert [list(point.others) for point in points] == [["n-gram"], ["n-gram"]]
    assert points[0].others["n-gram"].without is points[0].without
    assert len(points[0].others["n-gram"].with_drafter) == 2
    assert points[0].others["n-gram"].tokens_per_step == 1


def test_a_server_that_drafts_nothing_is_not_called_a_drafter() -> None:
    plan = BenchPlan((1,), (0.0,), max_tokens=2, rounds=1, requests=1)
    with serving(drafting=False) as (url, _):
        servers = {name: Server(url, []) for name in ("no drafter", "drafter")}
        with pytest.raises(MTPCError, match="serves without a drafter"):
            run_plan(find_engine("vllm"), servers, ["x"], plan, lambda *_: None)
        started = servers | {"drafter": Server(url, ["vllm", "serve"])}  # which may find no draft worth its time
        (point,) = run_plan(find_engine("vllm"), started, ["x"], plan, lambda *_: None)
    assert point.tokens_per_step == 1


def test_a_drafter_that_finds_no_draft_worth_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, counted = BenchPlan((1,), (0.0,), max_tokens=2, rounds=1, requests=1), "vllm:spec_decode_num_drafts_total 0"
    monkeypatch.setattr(vllm_engine, "fetch", lambda url: f"{counted}\n")
    with serving(drafting=False) as (url, _):
        servers = {name: Server(url, []) for name in ("no drafter", "drafter")}
        (point,) = run_plan(find_engine("vllm"), servers, ["x"], plan, lambda *_: None)
    assert point.tokens_per_step == 1


@pytest.mark.parametrize(("page", "found"), [('{"speculative_algorithm": "EAGLE"}', True), ("{}", False), ("x", False)])
def test_a_drafter_of_sglang(page: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_engine, "fetch", lambda url: page)
    assert find_engine("sglang").has_drafter("http://x") is found


def test_text_is_completed_to_its_full_length_and_answers_to_a_chat_are_not() -> None:
    plan = BenchPlan((1,), (0.0,), max_tokens=2, rounds=1, requests=1)
    for prompts, full_length in ((["hi"], True), ([[104, 105]], False)):
        with serving(drafting=False) as (plain, _), serving() as (drafted, state):
            servers = {"no drafter": Server(plain, []), "drafter": Server(drafted, [])}
            (point,) = run_plan(find_engine("vllm"), servers, prompts, plan, lambda *_: None)
        assert {body["ignore_eos"] for body in state.bodies} == {full_length}  # that of the warm-up as well
        assert {str(body["prompt"]) for body in state.bodies} == {str(prompts[0])}
        assert point.with_drafter[0].texts == ("HI", "HI")


def test_prompts_fill_whole_batches() -> None:
    plan = BenchPlan((1,), (0.0,), max_tokens=2, requests=5)
    assert len(choose_prompts(["a", "b", "c"], plan, 1)) == 5
    assert len(choose_prompts(["a", "b", "c"], plan, 4)) == 8
    assert choose_prompts(["a", "b"], plan, 1)[:3] == ["a", "b", "a"]


def test_an_offline_engine_gets_all_prompts_at_once() -> None:
    with serving() as (url, state):
        load = run_offline(url, "some-model", ["abc", "de"], SAMPLING, concurrency=2)
    assert [(one.prompt, one.text, one.tokens) for one in load.completions] == [("abc", "ABC", 3), ("de", "DED", 3)]
    assert load.in_flight == 2
    assert [body["concurrency"] for body in state.bodies] == [2]


@pytest.mark.parametrize("run", [run_load, run_offline])
def test_lengths_of_completions_may_be_spread(run: Callable[..., Load]) -> None:
    """Evenly, and alike in every run."""
    sampling = CompletionParams(40, 0.5, spread=True)
    assert CompletionParams(40, 0.5).limits(2) == [40, 40]
    limits = sampling.limits(16)
    assert limits[:8] == sampling.limits(8)
    assert 20 <= min(limits) < 24 and 36 < max(limits) <= 40 and sum(limits) / 16 == pytest.approx(30, abs=1)
    assert all(len(set(limits[start : start + 4])) == 4 for start in range(13))
    with serving() as (url, _):
        load = run(url, "some-model", ["abc"] * 5, sampling, 2)
    assert [one.tokens for one in load.completions] == limits[:5]


def test_an_offline_engine_that_fails_ends_in_one_sentence() -> None:
    with serving() as (url, _), pytest.raises(MTPCError, match=r"status 400.*refused"):
        run_offline(url, "some-model", ["refuse this"], SAMPLING, 1)
