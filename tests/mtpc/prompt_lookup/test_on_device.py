"""Matches and continuations of a batch on a device, against those of each text on the host."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpc.prompt_lookup.match import MAX_OCCURRENCES, REACH, History
from mtpc.prompt_lookup.on_device import DeviceTexts, continuations, longest_matches
from tests.mtpc.parallel.trace import Trace

COUNT = 9


def same(texts: list[list[int]], beyond: int, longest: int, reach: int = REACH) -> bool:
    """Whether the batch is as the host has it; what lies beyond each text are its own tokens again."""
    width = max(1, *map(len, texts)) + beyond
    rows = [(text + [*text, 0] * width)[:width] for text in texts]
    order = torch.arange(len(texts)).flip(0)  # rows of the table are not those of the batch
    table = torch.tensor(rows, dtype=torch.int32)[order]
    batch = DeviceTexts(table, order, torch.tensor([len(text) for text in texts], dtype=torch.int32))
    matches = longest_matches(batch, longest, reach)
    found = continuations(batch, matches, COUNT)
    for row, text in enumerate(texts):
        host = History(text, reach)
        expected = host.longest_match(longest)
        if matches.length[row] != expected.length:
            return False
        if expected.length and (
            matches.start[row] != expected.start or found[row].tolist() != host.continuation(expected, COUNT)
        ):
            return False
    return True


texts = st.lists(st.integers(0, 2), max_size=40)


@settings(max_examples=300)
@given(st.lists(texts, min_size=2, max_size=5), st.integers(0, 8), st.integers(1, 18), st.integers(1, 50))
def test_as_on_the_host(batch: list[list[int]], beyond: int, longest: int, reach: int) -> None:
    assert same(batch, beyond, longest)
    assert same(batch, beyond, longest, reach)


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 17, 18, 33])
@pytest.mark.parametrize("period", [1, 2, 16])
def test_texts_that_are_one_loop(length: int, period: int) -> None:
    loop = [i % period for i in range(length)]
    assert same([loop, loop[::-1], []], 0, 16)
    assert same([loop, loop[::-1], []], 5, 16)


@pytest.mark.parametrize("others", [MAX_OCCURRENCES - 1, MAX_OCCURRENCES, 3 * MAX_OCCURRENCES])
def test_of_many_places_with_the_same_last_tokens_the_latest_are_compared(others: int) -> None:
    text = [7, 1, 2, *[9, 1, 2, 5] * others, 7, 1, 2]
    assert same([text, text[::-1], text[1:], [1, 2] * others], 5, 16)
    assert (History(text).longest_match(16).length == 3) == (others < MAX_OCCURRENCES)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 1), min_size=200, max_size=500), min_size=1, max_size=3), st.integers(0, 9))
def test_long_texts_of_two_tokens(batch: list[list[int]], beyond: int) -> None:
    assert same(batch, beyond, 16)


def test_what_matches_cost() -> None:
    """In each step, for the whole width of the table."""
    rows, width = 4, 1 << 14
    table, lengths = torch.randint(9, (rows, width), dtype=torch.int32), torch.full((rows,), width, dtype=torch.int32)
    with Trace() as trace:
        longest_matches(DeviceTexts(table, torch.arange(rows), lengths), 16)
    assert trace.kernels <= 60
    assert trace.peak <= 9 * rows * width  # 8 for each place, and what does not grow with the width


def test_a_table_of_one_place() -> None:
    assert same([[3], []], 0, 16)


def test_only_so_far_back() -> None:
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    assert all(same([text, text], 3, 8, reach) for reach in range(1, 10))


def test_types_and_what_follows_where_nothing_matches() -> None:
    batch = DeviceTexts(
        torch.zeros(2, 4, dtype=torch.int32), torch.tensor([-1, 0]), torch.tensor([0, 4], dtype=torch.int32)
    )
    matches = longest_matches(batch, 16)
    assert matches.length.tolist() == [0, 3]
    tokens = continuations(batch, matches, 3)
    assert tokens.shape == (2, 3)
    assert tokens.dtype == torch.int64
