"""The limit of choosing drafts is what trying every way of stepping through a text finds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.limit import NGRAM, Choice, Chosen, Right, Row, always, right, soonest, speedups, table
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import StepCost
from mtpc.lab.evaluation.texts import Text
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import load_drafter
from mtpc.prompt_lookup.table import CopyTable
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_models import make_drafter, make_target

OWN = Own(2, serial=2)
COST = StepCost(plain=((1, 1.0), (4, 2.0)), verifying=((2, 1.1), (8, 1.7)), drafting=((1, 0.25),))


def every_way(found: Right, row: Row, place: int = 0) -> list[float]:
    """The times of all ways from a place to the end."""
    length = len(found.copied)
    if place >= length:
        return [0.0]
    steps = [(row.step(0), 0)]
    steps += [(row.step(n), n) for n in range(1, found.copied[place] + 1)]
    steps += [(row.draft(n) + row.step(n), n) for n in range(1, found.drafter[place] + 1)]
    return [time + rest for time, n in steps for rest in every_way(found, row, place + n + 1)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("requests", [1, 4])
@pytest.mark.parametrize("own", [OWN, Own(2), Own(2, serial=1)])
def test_the_limit_is_the_best_of_all_ways(seed: int, requests: int, own: Own) -> None:
    rng = np.random.default_rng(seed)
    found = Right(3, rng.integers(0, 4, 7), rng.integers(-1, 3, 7), rng.integers(0, 3, 7))
    row = Row(COST, requests, own)
    assert soonest(found, row) == pytest.approx(min(every_way(found, row)))


def test_a_rule_that_always_drafts_takes_its_steps() -> None:
    row = Row(COST, 1, OWN)
    time = always(np.array([2, 9, 9, -1, 0]), 3, 0.25, row)  # 3 tokens, then one without drafts, then a wrong draft
    assert time == pytest.approx(2 * (0.25 + row.step(3)) + row.step(0))


def test_what_is_right_along_a_text_that_repeats(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target")
    drafter = load_drafter(make_drafter(tmp_path / "drafter", target))
    tokens = [*range(40, 52), *range(40, 52), *range(60, 70)]
    drafts = drafter.config.num_drafts
    found = right(FrozenTarget(target), drafter, Text(tokens, 12), 0.0, drafts, 5, np.random.default_rng(0))
    assert len(found.copied) == len(found.drafter) == len(tokens) - 12 - drafts
    assert found.copied[:12].tolist() == [5, 5, 5, 5, 5, 5, 5, 4, 3, 2, 1, 0]  # 40 is said, 41 to 51 are to come
    assert found.ngram[:3].tolist() == [-1, NGRAM, NGRAM]  # one token matches, then two, then three
    assert (found.drafter <= drafts).all()
    rows = table({"prose": [found]}, drafts, Row(COST, 1, OWN), 1.0, "T = 0").rows
    assert [row[0] for row in rows] == ["prose", "all"] and rows[0][1:] == rows[1][1:]
    ngram, own, limit = speedups([found], drafts, Row(COST, 1, OWN), 1.0)
    assert limit >= max(ngram, own, 1.0)


def test_what_a_serial_part_would_draft_beyond_a_whole_draft_is_right_or_not_as_well(tmp_path: Path) -> None:
    folder = make_target(tmp_path / "target")
    target, drafter = FrozenTarget(folder), load_drafter(make_fastmtp(tmp_path / "drafter", folder))
    drafts, text = drafter.config.num_drafts, Text([*range(40, 80), *range(40, 60)], 20)
    evenly: Any = SimpleNamespace(random=lambda shape: np.full(shape, 0.1))
    whole, further = (right(target, drafter, text, 1.0, own, 5, evenly).drafter for own in (drafts, drafts + 4))
    assert whole.tolist() == further.clip(max=drafts).tolist()
    assert further.max() > drafts


def test_what_seems_to_pay_says_the_text_in_fewer_steps(tmp_path: Path) -> None:
    folder = make_target(tmp_path / "target")
    target, drafter = FrozenTarget(folder), load_drafter(make_drafter(tmp_path / "drafter", folder))
    text, row = Text([*range(40, 80), *range(40, 80), 1], 42), Row(COST, 1, OWN)
    found = Choice.along(text, target, drafter, 10, CopyTable(), row)
    for chosen in found:
        assert chosen.tokens == len(text.tokens) - text.start - 1
        assert 0 < chosen.time < chosen.tokens * row.step(0)
    counted = right(target, drafter, text, 0.0, drafter.config.num_drafts, 10, np.random.default_rng(0))
    assert soonest(counted, row) <= found.copies.time


def test_prompts_are_read_whoever_drafts() -> None:
    """One token after a prompt of eight, by no draft or by two that are wrong."""
    text, row = Right(8, np.zeros(1, np.int64), np.full(1, -1), np.zeros(1, np.int64)), Row(COST, 1, OWN)
    prompt = row.step(0) + COST.read(8) - COST.read(1)
    assert prompt == pytest.approx(1.6)
    assert Row(COST, 4, OWN).prompt(8) == pytest.approx(0.5 + 0.6)  # a batch goes on meanwhile
    ngram, drafter, limit = speedups([text], 2, row, 1.0)
    assert (ngram, limit) == (1.0, 1.0)
    assert drafter == pytest.approx((prompt + 1) / (prompt + row.draft(2) + row.step(2)))
    chosen = {"prose": [Choice(Chosen(8, 4.0, 2.0), Chosen(8, 2.0, 2.0))]}
    assert table({"prose": [text]}, 2, row, 1.0, "T = 0", chosen).rows[0][3:5] == ["1.67 x", "2.50 x"]


def test_the_table_has_both_to_the_better_one() -> None:
    nothing, row = np.zeros(4, np.int64), Row(COST, 1, OWN)
    found = {"prose": [Right(2, nothing, nothing - 1, nothing)]}
    chosen = {
        "prose": [Choice(Chosen(8, 4.0, 0.0), Chosen(8, 2.0, 0.0)), Choice(Chosen(4, 4.0, 0.0), Chosen(4, 2.0, 0.0))]
    }
    table_of_both = table(found, 2, row, 1.0, "T = 0", chosen)
    assert table_of_both.rows[0][3:5] == ["1.50 x", "3.00 x"] and table_of_both.rows[0][-1] == "2.00"
    assert len(table_of_both.columns) == len(table_of_both.rows[1]) == 7
