"""The table of `benchmarks/copying.py`, and what it asks of vLLM."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.copying import ALL, HYBRID, PROMPT_LOOKUP, Found, Point, contestants
from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.ngram import Ngram
from sglang_mtpc.token_map import read

DRAFTER = Path(__file__).parents[2] / "weights" / "byte-mtpc-hmm-n8"
FIXED = "hybrid, K = 7"  # the length that the drafter was trained for


def measurement(tokens: int, seconds: float, drafts: DraftCounters = NO_DRAFTS) -> Measurement:
    return Measurement(2, tokens, seconds, 1.0, 0.1, 0.1, drafts, float("nan"), ())


def test_speeds_are_of_all_tokens_over_all_seconds() -> None:
    questions = [measurement(50, 0.5, DraftCounters(5, 35, 20, ())), measurement(50, 0.5, DraftCounters(5, 35, 26, ()))]
    code = [measurement(300, 1.0, DraftCounters(90, 630, 198, ()))]
    found = Found({"qa": [[one] for one in questions], "code": [code]})
    assert found.speed("qa") == 100
    assert found.speed(ALL) == 200


def test_of_several_rounds_the_middle_one_counts() -> None:
    """The middle round is chosen for each question separately; an even number of rounds has two of them."""
    speeds = [[100, 10, 110], [300, 290, 40, 900]]
    found = Found({"qa": [[measurement(speed, 1.0) for speed in rounds] for rounds in speeds]})
    assert found.speed("qa") == (100 + 290 + 300) / 3
    assert len(found.of(ALL)) == 7


def test_both_are_compared_with_the_better_one_alone() -> None:
    speeds = {"no drafter": 100, "drafter": 150, PROMPT_LOOKUP: 120, FIXED: 200, HYBRID: 180}
    found = {name: Found({"qa": [[measurement(speed, 1.0)]]}) for name, speed in speeds.items()}
    table = Point(0.0, 1, found).table()
    assert table.columns == ["category", *speeds, "relative to the best baseline", "host overhead"]
    assert [row[-2] for row in table.rows] == ["1.20", "1.20"]


def test_what_choosing_takes_is_a_share_of_all_the_time() -> None:
    """20 calls of 10 ms in two seconds, 400 of 1 ms in six."""
    calls = {"part_seconds": {"lengths": 0.01, "parallel": 0.5}, "draft_calls": 20}
    fewer = {"part_seconds": {"lengths": 0.001}, "draft_calls": 400}
    found = Found({"qa": [[replace(measurement(1, 2.0), **calls)], [replace(measurement(1, 6.0), **fewer)]]})
    assert found.host_overhead("qa") == pytest.approx(0.6 / 8.0)
    assert Found({"qa": [[measurement(1, 2.0)]]}).host_overhead(ALL) == 0


def test_the_one_that_copies_drafts_longer() -> None:
    given = Namespace(target=Path("target"), drafter=DRAFTER, ngram=["2-4:5"], copied_drafts=12, server_arg=["--x"])
    given.max_tokens, given.batch_sizes, given.step_cost = 20, [1, 4], '{"drafting": [[1, 0.1]]}'
    given.alone, given.engine, given.include = Path("alone"), "vllm", ["drafter", "fixed-length"]
    found = contestants(given, longest_prompt=100)
    names = ["no drafter", "n-gram 2-4:5", "drafter", PROMPT_LOOKUP, FIXED, HYBRID]
    assert [(name, one.num_drafts) for name, one in found.items()] == list(
        zip(names, (0, 0, 7, 12, 7, 12), strict=True)
    )
    assert [one.ngram for one in found.values()] == [None, Ngram(2, 4, 5), None, None, None, None]
    assert found["prompt lookup"].drafter == Path("alone")
    assert {(one.max_batch, one.max_length, one.extra[0]) for one in found.values()} == {(4, 133, "--x")}
    for name, more in ((HYBRID, {"step_cost": {"drafting": [[1, 0.1]]}}), (FIXED, {"adaptive": False})):
        assert json.loads(found[name].extra[-1]) == {"mtpc": {"copy": True} | more}
    given.include = []
    assert list(contestants(given, longest_prompt=100)) == ["no drafter", "n-gram 2-4:5", PROMPT_LOOKUP, HYBRID]
    given.engine, given.include = "sglang", ["fixed-length"]
    found = contestants(given, longest_prompt=100)
    for name, cost in ((HYBRID, StepCost(drafting=((1, 0.1),))), (FIXED, None)):
        token_map = found[name].extra[-2]
        assert read(token_map).copy_
        assert read(token_map).step_cost == cost
        assert read(token_map).adaptive == (name == HYBRID)
    for wrong in ("{", "[1]", '{"drafting": 1}', '{"x": 1}'):
        given.step_cost = wrong
        with pytest.raises(MTPCError, match=r"^--step-cost is wrong: .*\.$"):
            contestants(given, longest_prompt=100)
