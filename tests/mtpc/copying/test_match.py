"""The longest suffix that was there before, against looking at every place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpc.copying.match import Match, continuation, longest_match


def by_looking_everywhere(text: list[int], longest: int) -> Match:
    """Each place, each length."""
    best = Match(0, 0)
    for end in range(1, len(text)):
        length = 0
        while length < min(longest, end) and text[end - 1 - length] == text[-1 - length]:
            length += 1
        if length and length >= best.length:
            best = Match(length, end)
    return best


@settings(max_examples=400, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 6))
def test_longest_match(text: list[int], longest: int) -> None:
    found, expected = longest_match(np.array(text, dtype=np.int32), longest), by_looking_everywhere(text, longest)
    assert found.length == expected.length
    if expected.length:
        assert found.start == expected.start


def test_only_so_far_back() -> None:
    text = np.array([1, 2, 3, 4, 5, 6, 1, 2], dtype=np.int32)
    assert longest_match(text, 8) == Match(2, 2)
    assert longest_match(text, 8, reach=7) == Match(1, 2)
    assert longest_match(text, 8, reach=6).length == 0


@pytest.mark.parametrize("text", [[], [1], [1, 2]])
def test_nothing_to_copy(text: list[int]) -> None:
    assert longest_match(np.array(text, dtype=np.int32), 8).length == 0


def test_a_loop_goes_on() -> None:
    text = np.array([9, 1, 2, 3, 1, 2, 3, 1], dtype=np.int32)
    match = longest_match(text, 8)
    assert match == Match(4, 5)
    assert continuation(text, match, 8).tolist() == [2, 3, 1, 2, 3, 1, 2, 3]


def test_a_continuation_may_lie_in_the_prompt() -> None:
    text = np.array([5, 6, 7, 8, 9, 5, 6], dtype=np.int32)
    assert continuation(text, longest_match(text, 8), 3).tolist() == [7, 8, 9]
