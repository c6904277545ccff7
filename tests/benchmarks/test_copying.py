"""The table of `benchmarks/copying.py`, and what it asks of vLLM."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.copying import ALL, Contestant, Found, contestants, ngram
from mtpc.bench.measure import Measurement
from mtpc.errors import MTPCError
from mtpc.servers.draft_counters import NO_DRAFTS, DraftCounters

DRAFTER = Path(__file__).parents[2] / "weights" / "byte-mtpc-hmm-n8"


def measurement(tokens: int, seconds: float, drafts: DraftCounters = NO_DRAFTS) -> Measurement:
    return Measurement(2, tokens, seconds, 1.0, 0.1, 0.1, drafts, float("nan"), ())


def test_speeds_are_of_all_tokens_over_all_seconds() -> None:
    questions = [measurement(50, 0.5, DraftCounters(5, 35, 20, ())), measurement(50, 0.5, DraftCounters(5, 35, 26, ()))]
    code = [measurement(300, 1.0, DraftCounters(90, 630, 198, ()))]
    found = Found(Contestant("drafter"), {"qa": questions, "code": code})
    assert found.speed("qa") == 100
    assert found.speed(ALL) == 200
    # 96 tokens after the prompts in 50 steps: those without a draft count.
    assert found.acceptance_length("qa") == 96 / 50
    assert found.acceptance_length(ALL) == pytest.approx(394 / 150)


def test_settings_of_the_ngram_drafter() -> None:
    flag, values = ngram("2-4:5").arguments
    assert flag == "--speculative-config"
    expected = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    assert json.loads(values) == expected
    with pytest.raises(MTPCError, match="MIN-MAX:K is expected"):
        ngram("5")


def test_the_one_that_copies_drafts_longer() -> None:
    given = Namespace(drafter=DRAFTER, ngram=["2-4:5"], copied_drafts=12, step_cost={"drafting": [[1, 0.1]]})
    names = ["no drafter", "n-gram 2-4:5", "drafter", "drafter that copies"]
    assert [(one.name, one.drafts) for one in contestants(given)] == list(zip(names, (0, 0, 7, 12), strict=True))
    settings = json.loads(contestants(given)[-1].arguments[-1])
    assert settings == {"mtpc": {"copy": True, "step_cost": {"drafting": [[1, 0.1]]}}}
