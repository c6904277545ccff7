"""How often copying is right, counted."""

from __future__ import annotations

from benchmarks.copy_chances import count
from mtpc.evaluation.texts import Text


def test_counts_by_the_length_of_the_match() -> None:
    counts = count([Text([7, 1, 2, 3, 7, 1, 2, 9, 1], 4)], 4)
    # After 3: no match.  After 7: one, right.  After 7 1: two, right.  After 7 1 2: three, wrong.  After 9: none.
    assert counts.tolist() == [[0, 2], [1, 1], [1, 1], [0, 1], [0, 0]]
