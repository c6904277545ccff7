"""The power of a chi-square test: which misstatement of a distribution it would have seen, and which it may miss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from scipy.special import chndtrinc
from scipy.stats import chi2, ncx2

from mtpc.lab.statistics.chi_square import Outcome


def power(noncentrality: float, degrees: int, level: float) -> float:
    """The probability that a test of this level fails samples whose law misses the table's by ``noncentrality``.

    That is n times the sum over the cells of (q - p)^2 / p.
    """
    return float(ncx2.sf(chi2.isf(level, degrees), degrees, noncentrality))


def power_against(table: Mapping[Outcome, float], law: Mapping[Outcome, float], samples: int, level: float) -> float:
    """The probability that so many samples of a law fail the test against these cells."""
    distance = sum((law[key] - expected) ** 2 / expected for key, expected in table.items())
    return power(samples * distance, len(table) - 1, level)


def seen_distance(samples: float, cells: int, level: float, chance: float = 0.99) -> float:
    """The least total variation over the cells that a test sees with this chance, wherever it lies.

    A misstatement of total variation d has noncentrality n sum (q - p)^2 / p >= n (sum |q - p|)^2 = 4 n d^2, and no
    less where all cells are misstated by the same part.  One that falls on rare cells is seen when it is smaller.
    """
    if cells < 2 or not samples:
        return 1.0
    return min(1.0, math.sqrt(_needed(cells - 1, level, chance) / samples) / 2)


@lru_cache(maxsize=4096)
def _needed(degrees: int, level: float, chance: float) -> float:
    """The noncentrality that a test of this level sees with this chance."""
    return float(chndtrinc(chi2.isf(level, degrees), degrees, 1 - chance))
