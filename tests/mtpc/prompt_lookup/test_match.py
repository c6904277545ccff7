"""The longest suffix that was there before, against looking at every place."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpc.prompt_lookup.match import INDEXED_AT_ONCE, MAX_OCCURRENCES, REACH, History, Match


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


@settings(max_examples=400)
@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=5), st.integers(1, 6))
def test_longest_match_of_a_text_that_grows(pieces: list[list[int]], longest: int) -> None:
    history, text = History(), list[int]()
    for piece in pieces:
        history.append(piece)
        text += piece
        assert history.tokens == text
        found, expected = history.longest_match(longest), by_looking_everywhere(text, longest)
        assert found.length == expected.length
        if expected.length:
            assert found.start == expected.start
        assert History(text).longest_match(longest) == found


def test_only_so_far_back() -> None:
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    assert History(text).longest_match(8) == Match(2, 2)
    assert History(text, reach=7).longest_match(8) == Match(1, 2)
    assert History(text, reach=6).longest_match(8).length == 0


def test_of_many_places_the_latest_are_looked_at() -> None:
    """Three tokens match at the first place of all, and two at as many after it as are looked at, or one fewer."""
    for others, length in ((MAX_OCCURRENCES - 1, 3), (MAX_OCCURRENCES, 2)):
        text = [7, 1, 2] + [token for other in range(others) for token in (100 + other, 1, 2)] + [7, 1, 2]
        assert History(text).longest_match(8).length == length


def test_what_is_in_no_text_matches_nothing() -> None:
    """Two answers of a store end in a break, token -1; no token stands before the first."""
    assert History([5, -1, 5]).longest_match(8) == Match(1, 1)
    assert History([4, -1, 5, -1, 5]).longest_match(8) == Match(2, 3)


@pytest.mark.parametrize("text", [[], [1], [1, 2]])
def test_nothing_to_copy(text: list[int]) -> None:
    assert History(text).longest_match(8).length == 0


def test_a_loop_goes_on() -> None:
    history = History([9, 1, 2, 3, 1, 2, 3, 1])
    match = history.longest_match(8)
    assert match == Match(4, 5)
    assert history.continuation(match, 8) == [2, 3, 1, 2, 3, 1, 2, 3]
    assert history.continuation(match, 2) == [2, 3]


def test_a_continuation_may_lie_in_the_prompt() -> None:
    history = History([5, 6, 7, 8, 9, 5, 6])
    assert history.continuation(history.longest_match(8), 3) == [7, 8, 9]


def of_last(text: list[int], count: int, longest: int) -> Match:
    """Return the longest match as if the text were only its last `count` tokens."""
    skipped = max(0, len(text) - count)
    found = History(text[skipped:], at_once=REACH).longest_match(longest)
    return found._replace(start=found.start + skipped) if found.length else found


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=12),
    st.integers(2, 20),
    st.integers(2, 60),
)
def test_a_long_prompt_is_indexed_from_its_end_in_parts(
    prompt: list[int], pieces: list[list[int]], at_once: int, reach: int
) -> None:
    """At any time as if the text began where the index does, which is a part farther back with each piece."""
    history, text = History(prompt, reach, at_once), list(prompt)
    for part, piece in enumerate([[], *pieces], start=1):
        if part > 1:
            history.append(piece)
            text += piece
        seen = min(reach, at_once * part, len(prompt)) + len(text) - len(prompt)
        assert history.longest_match(6) == of_last(text, seen, 6)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, INDEXED_AT_ONCE - 1, INDEXED_AT_ONCE])
def test_shorter_prompts_are_indexed_whole_at_once(size: int) -> None:
    """Their drafts are what they were when every prompt was."""
    generator = Random(size)
    prompt = [generator.randrange(12) for _ in range(size)]
    history, whole = History(prompt), History(prompt, at_once=REACH)
    for _ in range(200):
        match = history.longest_match(16)
        assert match == whole.longest_match(16)
        goes_on = generator.random() < 0.7 and match.length
        piece = history.continuation(match, 3) if goes_on else [generator.randrange(12)]
        history.append(piece)
        whole.append(piece)


def test_no_step_waits_for_a_whole_long_prompt() -> None:
    text = list(range(REACH))
    history, steps = History(text), 0
    assert len(history._pair_at) <= INDEXED_AT_ONCE
    while history._pair_first is not None:
        indexed, steps = history._first, steps + 1
        history.append([steps])
        assert indexed - history._first <= INDEXED_AT_ONCE
    assert steps == REACH // INDEXED_AT_ONCE - 1
    history.append(text[100:116])
    assert history.longest_match(16) == Match(16, 116)  # the beginning of the prompt is copied as well
