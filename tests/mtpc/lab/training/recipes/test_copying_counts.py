"""How often copying is right, counted."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from mtpc.lab.training.recipes.copying_counts import copy_probabilities, count_continuations


def test_counts_by_the_length_of_the_match() -> None:
    counts = count_continuations([([7, 1, 2, 3, 7, 1, 2, 9, 1], 4)], 4)
    # After 3: no match.  After 7: one, right.  After 7 1: two, right.  After 7 1 2: three, wrong.  After 9: none.
    assert counts.tolist() == [[0, 2], [1, 1], [1, 1], [0, 1], [0, 0]]


def test_chances_are_the_isotonic_regression_of_what_was_counted() -> None:
    generator = np.random.default_rng(0)
    for size in (1, 2, 5, 16, 40):
        times = generator.integers(0, 100, size + 1)
        counts = np.stack([generator.binomial(times, 0.5), times], 1)
        copied, seen = counts[1:, 0] + 1, counts[1:, 1] + 2
        expected = isotonic_regression(copied / seen, weights=seen).x
        assert np.allclose(copy_probabilities(counts), expected, atol=5.1e-5)
        assert all(0 < chance < 1 for chance in copy_probabilities(counts))
