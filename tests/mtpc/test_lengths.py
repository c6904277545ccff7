"""Lengths of drafts: no others bring more for the time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mtpc.declared import declared
from mtpc.errors import MTPCError
from mtpc.lengths import StepCost, best_lengths, tokens_per_time

CHANCES = arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(0, 4)), elements=st.floats(0, 1))


@given(CHANCES, st.floats(0.01, 1), st.floats(0, 1))
def test_no_other_lengths_bring_more(chances: np.ndarray, token: float, spent: float) -> None:
    reached, cost = np.cumprod(chances, axis=1), StepCost(token=token)
    found = tokens_per_time(reached, best_lengths(reached, cost, spent), cost, spent)
    every = itertools.product(range(reached.shape[1] + 1), repeat=len(reached))
    best = max(tokens_per_time(reached, np.array(lengths), cost, spent) for lengths in every)
    assert found == pytest.approx(best)


def test_likely_drafts_are_longer_and_a_full_batch_drafts_less() -> None:
    reached = np.cumprod([[0.95] * 12, [0.5] * 12], axis=1)
    likely, unlikely = best_lengths(reached, StepCost(token=0.1))
    assert likely > unlikely > 0
    many = np.repeat(reached, 16, axis=0)
    fewer = best_lengths(many, StepCost(token=0.1))
    assert fewer.sum() < 16 * (likely + unlikely)
    assert fewer[:16].min() > 0 == fewer[16:].max()


def test_where_verifying_costs_as_much_as_it_can_bring_nothing_is_drafted() -> None:
    assert not best_lengths(np.full((2, 3), 0.9), StepCost(token=1.0)).any()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"token": 0}, "costs is wrong at 'token'"),
        ({"tokens": 0.1}, "costs is wrong at 'tokens'"),
        ({"draft": "much"}, "costs is wrong at 'draft'"),
        ({"row": float("nan")}, "costs is wrong at 'row'"),
        ([], "costs is wrong: "),
    ],
)
def test_what_is_no_cost(values: object, sentence: str) -> None:
    with pytest.raises(MTPCError, match=sentence):
        declared(StepCost, values, "costs")
