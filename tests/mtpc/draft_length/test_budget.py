"""Which of its drafts a drafter may be asked for, and what part of its time they take."""

from __future__ import annotations

import pytest

from mtpc.draft_length.budget import Own


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
        (Own(3, serial=3, further=7), 8, [0, 1, 2, 3]),
    ],
)
def test_a_window_drafts_all_of_its_tokens_or_none(own: Own, most: int, choices: list[int]) -> None:
    assert own.choices(most) == choices


@pytest.mark.parametrize(
    ("own", "shares"),
    [
        (Own(4, serial=4), [0, 0.4, 0.6, 0.8, 1]),
        (Own(4), [0, 1, 1, 1, 1]),
        (Own(4, serial=1), [0, 2 / 3, 1, 1, 1]),
        (Own(2, serial=2, further=2), [0, 2 / 3, 1, 4 / 3, 5 / 3]),
        (Own(3, serial=3, further=1, spared=1.5), [0, 0.125, 0.375, 0.625, 0.875]),
    ],
)
def test_a_pass_of_the_drafter_takes_its_part(own: Own, shares: list[float]) -> None:
    assert [own.share(drafts) for drafts in range(5)] == shares


@pytest.mark.parametrize(
    ("own", "chosen", "most", "comes_to"),
    [
        (Own(3, serial=3, further=7), 1, 20, 10),
        (Own(3, serial=3, further=7), 3, 8, 8),
        (Own(3, serial=3, further=7), 0, 20, 0),
        (Own(3, serial=3), 1, 20, 3),
        (Own(7, serial=2), 1, 20, 1),
        (Own(7), 7, 20, 7),
    ],
)
def test_a_serial_part_alone_may_go_on(own: Own, chosen: int, most: int, comes_to: int) -> None:
    assert own.up_to(chosen, most) == comes_to


@pytest.mark.parametrize(
    ("own", "most", "tried"),
    [
        (Own(3, serial=3), 8, 1),
        (Own(7), 4, 4),
        (Own(7, serial=2), 16, 1),
        (Own(3, serial=3, spared=1.8), 8, 2),
        (Own(3, serial=3, spared=1.8), 1, 1),
        (Own(7, serial=1, spared=1.8), 16, 7),
    ],
)
def test_a_trial_drafts_what_shows_what_drafting_takes(own: Own, most: int, tried: int) -> None:
    assert own.tried(most) == tried


def test_who_drafts_nothing_takes_nothing() -> None:
    assert Own(0).share(0) == 0.0
