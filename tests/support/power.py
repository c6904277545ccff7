"""The power of a chi-square test against one alternative, exactly."""

from __future__ import annotations

from collections.abc import Mapping

from scipy.stats import chi2, ncx2

from mtpc.lab.statistics.chi_square import Outcome


def power_against(
    table: Mapping[Outcome, float], distribution: Mapping[Outcome, float], samples: int, level: float
) -> float:
    """Return the probability that samples of a distribution fail the test against a table at a significance level."""
    distance = sum((distribution[key] - expected) ** 2 / expected for key, expected in table.items())
    degrees = len(table) - 1
    return float(ncx2.sf(chi2.isf(level, degrees), degrees, samples * distance))
