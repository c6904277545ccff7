"""The power of a chi-square test: how small a difference between two distributions it detects."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import chndtrinc
from scipy.stats import chi2


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
