"""Rankings: one file, any size cut from it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mtpc.errors import MTPCError
from mtpc.vocabulary.ranking import Ranking, Rankings, rank

ENGLISH, FRENCH = Ranking((9, 4, 7, 1), (50, 20, 20, 1)), Ranking((3, 9), (8, 2))
BOTH = Rankings(12, {"english": ENGLISH, "french": FRENCH}, always=(2,))


def test_tokens_are_ranked_by_count_then_id() -> None:
    assert rank(np.array([0, 1, 5, 0, 5, 7])) == Ranking((5, 2, 4, 1), (7, 5, 5, 1))


def test_a_cut_holds_what_is_always_drafted_and_then_the_most_frequent() -> None:
    assert BOTH.cut("english", 3).tolist() == [2, 4, 9]
    assert BOTH.cut("french", 1).tolist() == [2]
    assert BOTH.cut("english", 3).dtype == np.int64


def test_a_smaller_cut_is_part_of_a_larger_one() -> None:
    cuts = [set(BOTH.cut("french", size).tolist()) for size in range(1, 13)]
    assert [len(cut) for cut in cuts] == list(range(1, 13))
    assert all(small < large for small, large in pairwise(cuts))


def test_what_the_text_did_not_hold_comes_from_other_languages_then_from_low_ids() -> None:
    # French: always 2; its own 3, 9; english ones by rank 4, 7, 1; then the lowest ids left.
    assert BOTH.cut("french", 4).tolist() == [2, 3, 4, 9]
    assert BOTH.cut("french", 6).tolist() == [1, 2, 3, 4, 7, 9]
    assert BOTH.cut("french", 8).tolist() == [0, 1, 2, 3, 4, 5, 7, 9]


def test_all_listed_tokens_where_no_size_is_given() -> None:
    assert BOTH.cut("french", None).tolist() == [2, 3, 9]


@pytest.mark.parametrize(
    ("language", "size", "message"),
    [
        ("german", 4, "unknown language 'german'; the file has english, french"),
        ("english", 0, "1 to 12 tokens, not 0"),
        ("english", 13, "1 to 12 tokens, not 13"),
    ],
)
def test_a_cut_that_cannot_be(language: str, size: int, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        BOTH.cut(language, size)


def test_an_unordered_set_is_used_whole() -> None:
    rankings = Rankings(12, {"any": Ranking((5, 3, 8), ranked=False)})
    assert rankings.cut("any", None).tolist() == rankings.cut("any", 3).tolist() == [3, 5, 8]
    with pytest.raises(MTPCError, match="unordered set of 3 tokens: its size cannot be 2"):
        rankings.cut("any", 2)


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        (Ranking((1, 12)), "token ids from 0 to 11"),
        (Ranking((-1,)), "token ids from 0 to 11"),
        (Ranking((1.5,)), "token ids from 0 to 11"),  # type: ignore[arg-type]
        (Ranking((3, 3)), "contains a token twice"),
        (Ranking((3, 4), (1,)), "2 tokens, but 1 counts"),
    ],
)
def test_a_wrong_ranking_is_refused(ranking: Ranking, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        Rankings(12, {"english": ranking})


def test_no_language_at_all() -> None:
    with pytest.raises(MTPCError, match="no language"):
        Rankings(12, {})


def test_a_list_of_tokens_is_in_their_order_unless_it_says_otherwise() -> None:
    tokens = (3, 1, 2)
    assert Rankings(5, {"ordered": Ranking(tokens)}).cut("ordered", 2).tolist() == [1, 3]
    with pytest.raises(MTPCError, match="set"):
        Rankings(5, {"set": Ranking(tokens, ranked=False)}).cut("set", 2)
