"""Repetition and near duplicates."""

from __future__ import annotations

import random

from mtpc.lab.distill.filters import NearDuplicates, is_repetitive, repeated_share

WORDS = [f"word{i}" for i in range(500)]


def text(seed: int, length: int = 60) -> list[str]:
    return random.Random(seed).choices(WORDS, k=length)


def test_the_repeated_share_counts_runs_that_occurred_before() -> None:
    assert repeated_share(range(100)) == 0.0
    assert repeated_share([1, 2, 3]) == 0.0
    once = list(range(20))
    assert repeated_share(once + once) == 13 / 33  # of 33 runs of eight, the second time's 13
    assert not is_repetitive(once + once)
    assert is_repetitive(once * 4)


def test_other_texts_are_new() -> None:
    seen = NearDuplicates()
    assert all(seen.add(" ".join(text(seed))) for seed in range(200))


def test_case_punctuation_and_a_word_here_and_there_make_no_new_text() -> None:
    found = 0
    for seed in range(100):
        seen = NearDuplicates()
        words = text(seed)
        assert seen.add(" ".join(words))
        assert not seen.add(", ".join(words).upper() + "!")
        words[30] = "another"
        found += not seen.add(" ".join(words))
    assert found >= 99  # their runs of three overlap by 55 / 61


def test_half_a_text_in_common_is_mostly_new() -> None:
    new = 0
    for seed in range(100):
        seen = NearDuplicates()
        seen.add(" ".join(text(seed)))
        new += seen.add(" ".join(text(seed)[:20] + text(1000 + seed)[:40]))  # overlap about 18 / 98
    assert new >= 90


def test_a_text_of_a_word_or_none() -> None:
    seen = NearDuplicates()
    assert [seen.add(each) for each in ("yes", "no", "Yes.", "", "!")] == [True, True, False, True, False]
