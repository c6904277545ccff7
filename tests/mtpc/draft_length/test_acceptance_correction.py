"""Predicted acceptance is corrected by observed acceptance."""

from __future__ import annotations

import pytest

from mtpc.draft_length.acceptance_correction import AcceptanceCorrection
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.table import CopyTable

COST = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 21.0)))  # a token more takes 0.2


def test_it_follows_what_comes_true_and_never_passes_one() -> None:
    correction = AcceptanceCorrection()
    assert correction.factor == 1.0
    for _ in range(2000):
        correction.learn(2.0, 1)
    assert correction.factor == pytest.approx(0.5, abs=0.06)
    for _ in range(2000):
        correction.learn(1.0, 3)
    assert correction.factor == 1.0


def test_it_goes_back_to_one_while_nothing_is_drafted() -> None:
    correction = AcceptanceCorrection()
    for _ in range(50):
        correction.learn(3.0, 0)
    before = correction.factor
    for _ in range(3000):
        correction.step()
    assert before < 0.2
    assert correction.factor > 0.95


def test_drafts_that_are_wrong_again_and_again_become_rare_for_all_but_seeded_requests() -> None:
    """Every request is new and rejects all copied tokens; only the shared correction can learn from that."""
    batch, lengths = DraftLengths(DraftBudget(0), 6, COST, CopyTable((0.7,))), []
    for number in range(40):
        names = [2 * number, 2 * number + 1]
        batch.begin()
        for name in names:
            batch.add(name, lambda: [1, 2, 3, 1, 2, 3], [], False)
        seeded, draft = batch.cut([[], []], [], 6, [True, False])
        lengths.append(len(draft))
        assert len(seeded) == 3
        batch.begin()
        for name in names:
            batch.add(name, list, [9], False)
        batch.forget(names)
    assert lengths[0] == max(lengths) > 0
    assert lengths.count(0) > 5  # and now and then one is tried again


def test_alone_nothing_is_chosen_among_others() -> None:
    batch = DraftLengths(DraftBudget(0), 6, COST, CopyTable((0.7,)))
    for _ in range(100):
        batch.correction.learn(1.0, 0)
    batch.begin()
    batch.add("one", lambda: [1, 2, 3, 1, 2, 3], [], False)
    assert batch.cut([[]], [], 6, [False]) == [[1, 2, 3]]


@pytest.mark.parametrize(("greedy", "pay"), [(True, 2), (False, 0)])
def test_how_often_the_drafter_is_right_at_first_is_the_tables(greedy: bool, pay: int) -> None:
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (101, 11.0)), drafting=((1, 0.3),))
    batch = DraftLengths(DraftBudget(2), 6, cost, CopyTable((0.7,), typical=(0.6, 0.2)))
    batch.begin(greedy)
    batch.add("one", lambda: [1, 2, 3], [], False)
    assert batch.plan(6) == pay
