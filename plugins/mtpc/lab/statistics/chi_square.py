"""Pearson's chi-square test of counted outcomes against an exact distribution, and the level of many such tests."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.stats import chi2

# A correct sampler fails a test once in a million runs; a wrong one is expected to fail by far more.
REJECT_BELOW = 1e-6

Outcome = TypeVar("Outcome", bound=Hashable)


class Judged(NamedTuple):
    """p: of the counts under the probabilities.  cells: the outcomes that were told apart."""

    p: float
    cells: int


def chi_square_p_value(
    counts: Mapping[Outcome, int], probabilities: Mapping[Outcome, float], smallest: float = 5.0
) -> float:
    """Pearson's p-value of observed `counts` under `probabilities`, see `chi_square`."""
    return chi_square(counts, probabilities, smallest).p


def chi_square(counts: Mapping[Outcome, int], probabilities: Mapping[Outcome, float], smallest: float = 5.0) -> Judged:
    """Pearson's test of observed `counts` under `probabilities`.

    Outcomes that `probabilities` does not list share what it leaves of 1.  Outcomes expected fewer than `smallest`
    times are merged, least likely first, until each cell is expected that often.  An impossible outcome that was
    seen gives 0.
    """
    total = sum(counts.values())
    rest = max(1.0 - sum(probabilities.values()), 0.0)
    unlisted = sum(count for outcome, count in counts.items() if outcome not in probabilities)
    if (rest < 1e-9 and unlisted) or any(counts.get(o, 0) for o, p in probabilities.items() if p <= 0.0):
        return Judged(0.0, len(probabilities))
    cells = [(p * total, counts.get(outcome, 0)) for outcome, p in probabilities.items() if p > 0.0]
    if rest >= 1e-9:
        cells.append((rest * total, unlisted))
    expected, observed = _merge_small(sorted(cells), smallest)
    if len(expected) < 2:
        return Judged(1.0, 1)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return Judged(float(chi2.sf(statistic, len(expected) - 1)), len(expected))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: those below a level are found wrong, and none of what is right with its chance."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _merge_small(cells: list[tuple[float, int]], smallest: float) -> tuple[np.ndarray, np.ndarray]:
    """Adjacent cells, in ascending order of expectation, merged until each is expected `smallest` times."""
    merged: list[list[float]] = [[0.0, 0.0]]
    for expected, observed in cells:
        if merged[-1][0] >= smallest:
            merged.append([0.0, 0.0])
        merged[-1][0] += expected
        merged[-1][1] += observed
    if len(merged) > 1 and merged[-1][0] < smallest:
        few = merged.pop()
        merged[-1] = [one + more for one, more in zip(merged[-1], few, strict=True)]
    table = np.array(merged)
    return table[:, 0], table[:, 1]
