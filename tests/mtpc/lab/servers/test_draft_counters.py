"""Acceptance length and rates against drafts counted by hand."""

import math

import pytest

from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters


def count(accepted: list[int], num_drafts: int) -> DraftCounters:
    """Return the counters of drafts; accepted: the number of accepted draft tokens of each."""
    at = tuple(float(sum(length > position for length in accepted)) for position in range(num_drafts))
    return DraftCounters(len(accepted), len(accepted) * num_drafts, sum(accepted), at)


def test_rates_of_five_drafts() -> None:
    counters = count([0, 1, 3, 3, 2], 3)
    assert counters.acceptance_length == pytest.approx(1 + 9 / 5)
    assert counters.marginal_rates == pytest.approx((4 / 5, 3 / 5, 2 / 5))
    assert counters.conditional_rates == pytest.approx((4 / 5, 3 / 4, 2 / 3))


def test_marginal_rates_sum_to_the_accepted_drafts() -> None:
    counters = count([0, 1, 3, 3, 2, 2, 0], 3)
    assert 1 + sum(counters.marginal_rates) == pytest.approx(counters.acceptance_length)
    assert math.prod(counters.conditional_rates) == pytest.approx(counters.marginal_rates[-1])


def test_a_position_never_reached_has_no_conditional_rate() -> None:
    rates = count([0, 0], 2).conditional_rates
    assert rates[0] == 0
    assert math.isnan(rates[1])


def test_no_draft_gives_no_length() -> None:
    assert math.isnan(count([], 2).acceptance_length)


def test_difference_and_sum_undo_each_other() -> None:
    first, second = count([1, 2], 3), count([0, 3, 3], 3)
    assert (first + second).since(first) == second


def test_a_missing_position_counts_as_nothing_accepted() -> None:
    assert count([1, 2], 3).since(NO_DRAFTS) == count([1, 2], 3)
    assert DraftCounters(2, 6, 3, (2, 1)) + count([1, 2], 3) == count([1, 2, 1, 2], 3)
