"""Tests of points that are uniform where a server samples what it states."""

from __future__ import annotations

import numpy as np

from mtpc.lab.prove.uniformity import PAIR_BINS, _independent


def test_points_of_pairs_are_independent_or_not() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 4000))
    apart = _independent("pairs", "it", first, second)
    assert apart.cells == (PAIR_BINS - 1) ** 2 + 1 and apart.samples == 4000
    assert apart.p is not None and apart.p > 1e-3
    alike = _independent("pairs", "it", first, (first + 0.1 * second) % 1)
    assert alike.p is not None and alike.p < 1e-9
    few = _independent("pairs", "it", first[:9], second[:9])
    assert few.p is None and few.cells == 0
