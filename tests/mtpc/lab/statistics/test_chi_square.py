"""The chi-square helper itself: accepts the truth, rejects what is wrong."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square

TRUTH = dict(enumerate([0.4, 0.3, 0.2, 0.0999, 0.0001]))


def draw(probabilities: list[float], count: int = 20_000) -> Counter[int]:
    """Seeded samples."""
    return Counter(np.random.default_rng(0).choice(len(probabilities), size=count, p=probabilities).tolist())


def test_truth_is_accepted() -> None:
    assert chi_square(draw(list(TRUTH.values())), TRUTH).p > 0.001


def test_p_values_of_the_truth_are_uniform() -> None:
    generator = np.random.default_rng(1)
    values = [
        chi_square(
            Counter(generator.choice(4, size=400, p=[0.4, 0.3, 0.2, 0.1]).tolist()), {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}
        ).p
        for _ in range(400)
    ]
    assert 0.4 < np.mean(values) < 0.6
    assert 0.02 < np.mean(np.array(values) < 0.05) < 0.09


def test_a_wrong_distribution_is_rejected() -> None:
    assert chi_square(draw([0.36, 0.34, 0.2, 0.0999, 0.0001]), TRUTH).p < REJECT_BELOW


def test_an_impossible_outcome_is_rejected() -> None:
    assert chi_square({0: 500, 1: 499, 2: 1}, {0: 0.5, 1: 0.5, 2: 0.0}).p == 0.0
    assert chi_square({0: 500, 1: 499, "unheard of": 1}, {0: 0.5, 1: 0.5}).p == 0.0


def test_unlisted_outcomes_share_the_rest() -> None:
    counts = draw([0.5, 0.2, 0.15, 0.15])
    assert chi_square(counts, {0: 0.5, 1: 0.2}).p > 0.001
    assert chi_square(counts, {0: 0.5, 1: 0.3}).p < REJECT_BELOW
