"""Which of its drafts a drafter may be asked for, and what part of its time they take."""

from __future__ import annotations

import pytest

from mtpc.own import Own


@pytest.mark.parametrize(
    ("own", "most", "choices"),
    [
        (Own(3, serial=3), 8, [0, 1, 2, 3]),
        (Own(3, serial=3), 2, [0, 1, 2]),
        (Own(7), 16, [0, 7]),
        (Own(7), 4, [0, 4]),
        (Own(7, serial=2), 16, [0, 1, 2, 7]),
        (Own(7, serial=2), 2, [0, 1, 2]),
        (Own(0), 8, [0]),
    ],
)
def test_a_window_drafts_all_of_its_tokens_or_none(own: Own, most: int, choices: list[int]) -> None:
    assert own.choices(most) == choices


@pytest.mark.parametrize(
    ("own", "shares"),
    [(Own(4, serial=4), [0, 0.4, 0.6, 0.8, 1]), (Own(4), [0, 1, 1, 1, 1]), (Own(4, serial=1), [0, 2 / 3, 1, 1, 1])],
)
def test_a_pass_of_the_drafter_takes_its_part(own: Own, shares: list[float]) -> None:
    assert [own.share(drafts) for drafts in range(5)] == shares


def test_who_drafts_nothing_takes_nothing() -> None:
    assert Own(0).share(0) == 0.0
