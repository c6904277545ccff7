"""Lengths of drafts: no others bring more for the time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mtpc.draft_length.choice import BatchCosts, ChosenLengths, best_common_length, best_lengths, least_chance
from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import validated

CHANCES = arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(0, 4)), elements=st.floats(0, 1))


def line(offset: float, token: float) -> StepCost:
    """Steps that take 1 and, with drafts, so much more, and so much for each token after the first."""
    ends = (1, 101)
    plain, verifying = (tuple((n, base + token * (n - 1)) for n in ends) for base in (1.0, 1.0 + offset))
    return StepCost(plain=plain, verifying=verifying)


def best_of(reached: np.ndarray, cost: StepCost, spent: float = 0.0) -> ChosenLengths:
    """`best_lengths` of a batch, float64 [B, m]."""
    return best_lengths(reached.tolist(), BatchCosts(cost, *reached.shape[:1], reached.size), spent)


def least_of(foreseen: np.ndarray, cost: StepCost, spent: float = 0.0) -> np.ndarray:
    """`least_chance` of a batch, float64 [m]."""
    costs = BatchCosts(cost, len(foreseen), foreseen.size)
    return np.array(least_chance(costs.best(foreseen.tolist(), spent), foreseen.shape[1], costs))


def rate(reached: np.ndarray, lengths: np.ndarray, offset: float, token: float, spent: float) -> float:
    """Of a step with drafts of these lengths and such costs: what it brings, over what it takes."""
    inside = np.arange(reached.shape[1]) < lengths[:, None]
    time = 1.0 + token * (len(reached) + int(lengths.sum()) - 1) + (offset if lengths.any() else 0.0) + spent
    return float((len(reached) + reached[inside].sum()) / time)


@given(CHANCES, st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 1))
def test_no_other_lengths_bring_more(chances: np.ndarray, offset: float, token: float, spent: float) -> None:
    reached = np.cumprod(chances, axis=1)
    found = best_of(reached, line(offset, token), spent)
    assert found.rate == pytest.approx(rate(reached, np.array(found.of), offset, token, spent))
    every = itertools.product(range(reached.shape[1] + 1), repeat=len(reached))
    best = max(rate(reached, np.array(lengths), offset, token, spent) for lengths in every)
    assert found.rate == pytest.approx(best)


@given(CHANCES, st.floats(0.01, 1), st.floats(0, 1))
def test_drafts_that_turn_out_as_foreseen_are_cut_where_they_bring_most(
    chances: np.ndarray, token: float, spent: float
) -> None:
    reached, cost = np.cumprod(chances, axis=1), line(0.0, token)
    found = best_of(reached, cost, spent)
    ends = (reached >= least_of(reached, cost, spent)).sum(1)
    assert rate(reached, ends, 0.0, token, spent) == pytest.approx(found.rate)


def test_a_token_that_adds_nothing_is_worth_any_chance() -> None:
    """Of one request: up to four tokens are read in the time of one, then each takes a tenth more, or less and less."""
    foreseen = np.array([[0.5, 0.4, 0.3, 0.2, 0.1]])
    flat = StepCost(plain=((1, 1.0),), verifying=((4, 1.1), (14, 2.1)))
    rate = best_of(foreseen, flat).rate
    np.testing.assert_allclose(least_of(foreseen, flat), [0, 0, 0, 0.1 * rate, 0.1 * rate])
    falling = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (2, 1.3), (6, 1.3), (7, 1.3)))
    rate = best_of(foreseen, falling).rate
    np.testing.assert_allclose(least_of(foreseen, falling), [0.3 * rate / 5, 0, 0, 0, 0], atol=1e-12)


def test_likely_drafts_are_longer_and_a_full_batch_drafts_less() -> None:
    reached = np.cumprod([[0.95] * 12, [0.5] * 12], axis=1)
    likely, unlikely = best_of(reached, line(0.0, 0.1)).of
    assert likely > unlikely > 0
    many = np.tile(reached, (16, 1))
    fewer = best_of(many, line(0.0, 0.1)).of
    assert sum(fewer) < 16 * (likely + unlikely)
    assert min(fewer[::2]) > 0 == max(fewer[1::2])


def test_where_verifying_costs_as_much_as_it_can_bring_nothing_is_drafted() -> None:
    assert not any(best_of(np.full((2, 3), 0.9), line(0.0, 1.0)).of)
    assert not any(best_of(np.full((2, 3), 0.9), line(3.0, 0.01)).of)


def test_curves_are_straight_between_their_points() -> None:
    cost = StepCost(plain=((1, 1.0),), verifying=((2, 1.1), (4, 1.3), (8, 2.3)), drafting=((1, 0.2), (3, 0.4)))
    assert [cost.step(1, drafts) for drafts in (1, 2, 3, 5, 8)] == pytest.approx([1.1, 1.2, 1.3, 1.8, 2.55])
    assert cost.verify(1, 5).tolist() == pytest.approx([cost.step(1, drafts) for drafts in range(1, 6)])
    assert cost.step(9, 0) == 1.0
    assert [cost.draft(rows) for rows in (1, 2, 5)] == pytest.approx([0.2, 0.3, 0.6])


def test_what_many_requests_take_without_drafts_they_take_with_them() -> None:
    cost = StepCost(plain=((1, 1.0), (16, 2.5)), verifying=((2, 1.1), (64, 4.2)))
    token = (4.2 - 1.1) / 62
    assert cost.step(16, 1) == pytest.approx(2.5 + 0.1 + token)
    assert cost.verify(16, 48).tolist() == pytest.approx([2.6 + token * drafts for drafts in range(1, 49)])
    cheaper = StepCost(plain=((1, 1.0), (16, 2.5)), verifying=((1, 0.2),))
    assert cheaper.verify(16, 3).tolist() == [2.5] * 3


def test_a_common_length_is_the_best_of_all() -> None:
    """Of 0 to 6 tokens; `best_lengths` finds it too where all requests are alike."""
    rng = np.random.default_rng(5)
    for rows, token in itertools.product((1, 3), (0.02, 0.1, 0.4, 2.0)):
        foreseen, cost = np.cumprod(rng.random((rows, 6)), axis=1), line(0.1, token)
        rates = [rate(foreseen, np.full(rows, length), 0.1, token, 0.2 * (length > 0)) for length in range(7)]
        costs = BatchCosts(cost, rows, 6 * rows)
        best = best_common_length(foreseen.tolist(), 6, costs, [0.0] + [0.2] * 6)
        assert (best.length, best.rate) == (int(np.argmax(rates)), pytest.approx(max(rates)))
        alike = foreseen[:1].repeat(rows, 0)
        common = best_common_length(alike.tolist(), 6, costs, [0.0] * 7)
        assert common.length * rows >= sum(best_of(alike, cost).of) - rows


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"plain": []}, "costs is wrong at 'plain'"),
        ({"token": 0.1}, "costs is wrong at 'token'"),
        ({"drafting": "much"}, "costs is wrong at 'drafting'"),
        ({"verifying": [[1, 1.0], [2]]}, "costs is wrong at 'verifying.1.1'"),
        ({"verifying": [[2, float("nan")]]}, "costs is wrong at 'verifying.0.1'"),
        ({"verifying": [[2, 1.0], [2, 1.5]]}, "verifying must list its points by rising number"),
        ({"plain": [[1, 0.0]]}, "plain and verifying must be above 0"),
        ({"plain": [[1, 1.0], [4, 0.0], [8, 1.0]]}, "plain and verifying must be above 0"),
        ({"sampled": {"sampled": {}}}, "sampled must not contain another 'sampled' table"),
        ({"sampled": {"plain": []}}, "costs is wrong at 'sampled.plain'"),
        ([], "costs is wrong: "),
    ],
)
def test_what_is_no_cost(values: object, sentence: str) -> None:
    with pytest.raises(MTPCError, match=sentence):
        validated(StepCost, values, "costs")


def test_a_measured_curve_that_falls_at_its_end_never_reaches_nothing() -> None:
    cost = StepCost(plain=((1, 1.0), (2, 0.5)), verifying=((1, 1.0), (2, 0.5)), drafting=((1, 0.2), (2, 0.1)))
    for rows in (1, 2, 3, 64):
        costs = BatchCosts(cost, rows, 8 * rows)
        assert min(costs.drafted) > 0 and costs.drafting > 0
        assert costs.plain_rate(0.0) > 0
