"""The tokens of a draft that are the drafter's."""

from __future__ import annotations

import pytest

from mtpc.draft_length.budget import DraftBudget


def test_what_a_drafter_can_be_asked_for() -> None:
    """Nothing, and what each of its draft steps completes, of which the parallel part's is one."""
    for budget, longest, choices in (
        (DraftBudget(3, steps=3), 8, [0, 1, 2, 3]),
        (DraftBudget(7, steps=2), 8, [0, 1, 2, 7]),
        (DraftBudget(7, steps=2), 4, [0, 1, 2, 4]),
        (DraftBudget(5), 8, [0, 5]),
        (DraftBudget(0), 8, [0]),
    ):
        assert budget.choices(longest) == choices


def test_all_draft_steps_take_as_long() -> None:
    assert [DraftBudget(3, steps=3).share(tokens) for tokens in range(4)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    both = DraftBudget(7, steps=2)
    assert [both.share(tokens) for tokens in (0, 1, 2, 3, 7)] == pytest.approx([0, 1 / 3, 2 / 3, 1, 1])
    assert DraftBudget(5).share(1) == 1
