"""Chi-square test of samples against an exact distribution, shared by the tests of the core and of the engines."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from scipy import stats

# A correct sampler fails a test once in a million runs; a wrong one is expected to fail by far more.
REJECT_BELOW = 1e-6


def chi_square_p_value(
    counts: Mapping[Hashable, int], probabilities: Mapping[Hashable, float], smallest: float = 5.0
) -> float:
    """Pearson's p-value of observed `counts` under `probabilities`.

    Outcomes that `probabilities` does not list share what it leaves of 1.  Outcomes expected fewer than `smallest`
    times are merged, least likely first, until each cell is expected that often.  An impossible outcome that was
    seen gives 0.
    """
    total = sum(counts.values())
    rest = max(1.0 - sum(probabilities.values()), 0.0)
    unlisted = sum(count for outcome, count in counts.items() if outcome not in probabilities)
    if (rest < 1e-9 and unlisted) or any(counts.get(o, 0) for o, p in probabilities.items() if p <= 0.0):
        return 0.0
    cells = [(p * total, counts.get(outcome, 0)) for outcome, p in probabilities.items() if p > 0.0]
    if rest >= 1e-9:
        cells.append((rest * total, unlisted))
    expected, observed = _merge_small(sorted(cells), smallest)
    if len(expected) < 2:
        return 1.0
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, df=len(expected) - 1))


def _merge_small(cells: list[tuple[float, int]], smallest: float) -> tuple[np.ndarray, np.ndarray]:
    """Adjacent cells, in ascending order of expectation, merged until each is expected `smallest` times."""
    merged: list[list[float]] = [[0.0, 0.0]]
    for expected, observed in cells:
        if merged[-1][0] >= smallest:
            merged.append([0.0, 0.0])
        merged[-1][0] += expected
        merged[-1][1] += observed
    if len(merged) > 1 and merged[-1][0] < smallest:
        expected, observed = merged.pop()
        merged[-1][0] += expected
        merged[-1][1] += observed
    table = np.array(merged)
    return table[:, 0], table[:, 1]
