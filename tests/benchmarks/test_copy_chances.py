"""How often copying is right, counted."""

from __future__ import annotations

import numpy as np

from benchmarks.copy_chances import chances, count
from mtpc.evaluation.texts import Text


def test_counts_by_the_length_of_the_match() -> None:
    counts = count([Text([7, 1, 2, 3, 7, 1, 2, 9, 1], 4)], 4)
    # After 3: no match.  After 7: one, right.  After 7 1: two, right.  After 7 1 2: three, wrong.  After 9: none.
    assert counts.tolist() == [[0, 2], [1, 1], [1, 1], [0, 1], [0, 0]]


def test_chances_never_fall() -> None:
    found = chances(np.array([[0, 50], [20, 100], [50, 100], [30, 98], [97, 100], [0, 0]]))
    assert found[0] == round(21 / 102, 4)
    assert found == sorted(found)
    assert 0.3 < found[1] == found[2] < 0.5  # the third fell below the second: they are one
    assert all(0 < chance < 1 for chance in found)
