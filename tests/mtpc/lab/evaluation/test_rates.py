"""Rates from counts, by hand."""

from __future__ import annotations

import pytest

from mtpc.lab.evaluation.rates import rates_from_counts


def test_rates_from_counts() -> None:
    rates = rates_from_counts(100, [80, 60, 15, 0, 0])
    assert rates.marginal == [0.8, 0.6, 0.15, 0.0, 0.0]
    assert rates.conditional == pytest.approx([0.8, 0.75, 0.25, 0.0, 0.0])
    assert rates.length == pytest.approx(2.55)


def test_no_steps_are_no_acceptance() -> None:
    assert rates_from_counts(0, [0, 0]) == ([0.0, 0.0], [0.0, 0.0], 1.0)
