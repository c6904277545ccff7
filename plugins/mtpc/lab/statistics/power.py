"""The power of a chi-square test: which misstatement of a distribution it would have seen, and which it may miss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import torch

from mtpc.lab.statistics.chi_square import Outcome, chi_square_threshold, crossing


def power(noncentrality: float, degrees: int, level: float) -> float:
    """The probability that a test of this level fails samples whose law misses the table's by ``noncentrality``.

    That is n times the sum over the cells of (q - p)^2 / p.  The statistic is then a chi-square variable with
    ``degrees`` and twice as many again as a Poisson variable of half the noncentrality says.
    """
    half, threshold = noncentrality / 2, chi_square_threshold(level, degrees)
    first = max(0, math.floor(half - 12 * math.sqrt(half)))
    more = torch.arange(first, math.ceil(half + 12 * math.sqrt(half)) + 40, dtype=torch.float64)
    weights = torch.exp(torch.xlogy(more, torch.full_like(more, half)) - half - torch.lgamma(more + 1))
    tails = torch.special.gammaincc(degrees / 2 + more, torch.full_like(more, threshold / 2))
    return float((weights * tails).sum())


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
    return crossing(lambda noncentrality: power(noncentrality, degrees, level) >= chance, 1.0, 30)
