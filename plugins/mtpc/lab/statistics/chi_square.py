"""Pearson's chi-square test of counted outcomes against an exact distribution, and Holm's correction for many tests."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.stats import chi2

# A correct sampler fails a test once in a million runs; a wrong one is expected to fail by far more.
REJECT_BELOW = 1e-6

Outcome = TypeVar("Outcome", bound=Hashable)


class ChiSquareResult(NamedTuple):
    """The outcome of a chi-square test.

    Attributes:
        p: p-value of the counts under the expected probabilities.
        cells: Number of cells after merging.
    """

    p: float
    cells: int


def chi_square(
    counts: Mapping[Outcome, int], probabilities: Mapping[Outcome, float], smallest: float = 5.0
) -> ChiSquareResult:
    """Test observed counts against a distribution (Pearson).

    Cells with a low expected count are merged, least likely first, until each reaches the minimum.

    Args:
        counts: Observed count of each outcome.
        probabilities: Expected probability of each outcome.  Outcomes that are left out share the remainder to 1.
        smallest: Minimum expected count of a cell.

    Returns:
        The p-value and the number of cells; p is 0 where an outcome of probability 0 was observed.
    """
    total = sum(counts.values())
    remainder = max(1.0 - sum(probabilities.values()), 0.0)
    unlisted = sum(count for outcome, count in counts.items() if outcome not in probabilities)
    if (remainder < 1e-9 and unlisted) or any(counts.get(o, 0) for o, p in probabilities.items() if p <= 0.0):
        return ChiSquareResult(0.0, len(probabilities))
    cells = [(p * total, counts.get(outcome, 0)) for outcome, p in probabilities.items() if p > 0.0]
    if remainder >= 1e-9:
        cells.append((remainder * total, unlisted))
    expected, observed = _merge_small(sorted(cells), smallest)
    if len(expected) < 2:
        return ChiSquareResult(1.0, 1)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return ChiSquareResult(float(chi2.sf(statistic, len(expected) - 1)), len(expected))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple testing (Holm's step-down method).

    Rejecting every test whose adjusted value is below a level keeps the probability of any false rejection below it.

    Args:
        p_values: p-values of all tests.

    Returns:
        Adjusted p-values, in the same order.
    """
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _merge_small(cells: list[tuple[float, int]], smallest: float) -> tuple[np.ndarray, np.ndarray]:
    """Merge adjacent cells, in ascending order of expectation, until each is expected `smallest` times."""
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
