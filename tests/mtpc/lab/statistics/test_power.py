"""The power of chi-square tests, by simulation, and the correction for many of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mtpc.lab.statistics.chi_square import holm
from mtpc.lab.statistics.power import detectable_distance
from tests.support.power import power_against

LEVEL = 1e-4


@pytest.mark.parametrize(("cells", "samples"), [(2, 4000), (16, 4000), (60, 20_000)])
def test_what_is_stated_to_be_seen_is_seen(cells: int, samples: int) -> None:
    """In 99 of 100 runs where all cells are misstated by the same part, the hardest to see, and in more elsewhere."""
    distance, generator = detectable_distance(samples, cells, LEVEL), np.random.default_rng(0)
    table = generator.dirichlet([5.0] * cells)
    table = (
        np.repeat(1 / cells, cells) if cells < 10 else np.repeat(table[: cells // 2] / 2, 2) / table[: cells // 2].sum()
    )
    spread = table * (1 + 2 * distance * np.tile([1, -1], cells // 2))
    one = table.copy()
    one[0], one[1:] = one[0] + distance, one[1:] * (1 - distance / (1 - one[0]))
    threshold = stats.chi2.isf(LEVEL, cells - 1)
    for law, least, most in ((spread, 0.98, 0.999), (one, 0.985, 1.0), (table, 0.0, 0.002)):
        counts = generator.multinomial(samples, law, size=4000)
        statistics = ((counts - samples * table) ** 2 / (samples * table)).sum(1)
        assert least <= (statistics > threshold).mean() <= most
    assert power_against(dict(enumerate(table)), dict(enumerate(spread)), samples, LEVEL) == pytest.approx(0.99)
    assert power_against(dict(enumerate(table)), dict(enumerate(one)), samples, LEVEL) >= 0.99 - 1e-9


def test_more_samples_see_less_and_none_see_nothing() -> None:
    seen = [detectable_distance(samples, 30, LEVEL) for samples in (100, 1000, 100_000)]
    assert seen == sorted(seen, reverse=True)
    assert seen[2] == pytest.approx(seen[1] / 10)
    assert detectable_distance(0, 30, LEVEL) == detectable_distance(10, 1, LEVEL) == 1.0


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
