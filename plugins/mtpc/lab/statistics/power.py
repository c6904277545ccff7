"""The power of a chi-square test: how small a difference between two distributions it detects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from scipy.special import chndtrinc
from scipy.stats import chi2, ncx2

from mtpc.lab.statistics.chi_square import Outcome


def power(noncentrality: float, degrees: int, level: float) -> float:
    """Return the probability that a chi-square test rejects samples of another distribution.

    Args:
        noncentrality: n times the sum over the cells of (q - p)^2 / p, for n samples of q tested against p.
        degrees: Degrees of freedom, the number of cells less one.
        level: Significance level of the test.
    """
    return float(ncx2.sf(chi2.isf(level, degrees), degrees, noncentrality))


def power_against(
    table: Mapping[Outcome, float], distribution: Mapping[Outcome, float], samples: int, level: float
) -> float:
    """Return the probability that samples of a distribution fail the test against a table.

    Args:
        table: Expected probability of each cell.
        distribution: Probability of each cell that the samples are drawn from.
        samples: Number of samples.
        level: Significance level of the test.
    """
    distance = sum((distribution[key] - expected) ** 2 / expected for key, expected in table.items())
    return power(samples * distance, len(table) - 1, level)


def detectable_distance(samples: float, cells: int, level: float, chance: float = 0.99) -> float:
    """Compute the smallest total variation that a test detects, whichever cells differ.

    A difference of total variation d has noncentrality n sum (q - p)^2 / p >= n (sum |q - p|)^2 = 4 n d^2.  The bound
    is tight where all cells differ by the same fraction.  A difference in rare cells is detected when it is smaller.

    Args:
        samples: Number of samples.
        cells: Number of cells.
        level: Significance level of the test.
        chance: Probability with which the difference is detected.

    Returns:
        Total variation over the cells, at most 1; 1 where nothing can be detected.
    """
    if cells < 2 or not samples:
        return 1.0
    return min(1.0, math.sqrt(_needed(cells - 1, level, chance) / samples) / 2)


@lru_cache(maxsize=4096)
def _needed(degrees: int, level: float, chance: float) -> float:
    """Return the noncentrality that a test of this level detects with this probability."""
    return float(chndtrinc(chi2.isf(level, degrees), degrees, 1 - chance))
