"""The cells of a joint are disjoint, are all of it, and are as many as the samples can tell apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from mtpc.lab.statistics.chi_square import chi_square
from mtpc.lab.statistics.windows import Window, cells, count_windows

GENERATOR = np.random.default_rng(0)
LAWS = {start: GENERATOR.dirichlet([0.3] * 4) for n in range(3) for start in itertools.product(range(4), repeat=n)}


def following(starts: Sequence[Window]) -> list[dict[int, float] | None]:
    """Nothing is known after (3,), and the token 0 is left out."""
    laws = [None if start == (3,) else LAWS[start] for start in starts]
    return [None if law is None else {i: float(law[i]) for i in (1, 2, 3)} for law in laws]


def mass(window: Window) -> float:
    """The probability of a text that begins so."""
    return float(np.prod([LAWS[window[:i]][token] for i, token in enumerate(window)]))


@pytest.mark.parametrize("samples", [30, 300, 30_000])
def test_each_cell_has_the_probability_of_the_windows_that_are_counted_there(samples: int) -> None:
    table = cells(following, 3, samples)
    assert sum(table.values()) == pytest.approx(1)
    windows = list(itertools.product(range(4), repeat=3))
    for key, p in table.items():
        assert p == pytest.approx(sum(mass(window) for window in windows if count_windows([window], table)[key]))
        assert not key or p * samples >= 5
        assert 0 not in key and key[:2] != (3, 1)


def test_windows_of_the_law_pass_and_others_do_not() -> None:
    table = cells(following, 3, 4000)
    drawn = GENERATOR.choice(64, size=4000, p=[mass(window) for window in itertools.product(range(4), repeat=3)])
    windows = [tuple(int(token) for token in np.unravel_index(number, (4, 4, 4))) for number in drawn]
    assert chi_square(count_windows(windows, table), table).p > 1e-3
    assert chi_square(count_windows(windows[:3700] + [(2, 1, 1)] * 300, table), table).p < 1e-6
