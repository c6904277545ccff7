"""Stated chances, corrected by what came of them in the request at hand."""

from __future__ import annotations

import math
from collections.abc import Iterable

RATE, FARTHEST = 0.1, 3.0  # a step of the shift, and how far it may go
SMALLEST, LARGEST = 1e-6, 0.995  # no chance is 1: what has always been right may be wrong next


LARGEST_ODDS = LARGEST / (1.0 - LARGEST)


def shifted(chance: float, shift: float, slope: float = 1.0) -> float:
    """A chance in [0, 1], its logit times the slope and shifted, from `SMALLEST` to `LARGEST`; none stays none."""
    if chance <= 0.0:
        return 0.0
    chance = min(max(chance, SMALLEST), LARGEST)
    odds = chance / (1.0 - chance)
    if slope != 1.0:
        odds **= slope
    odds *= math.exp(shift)
    return min(max(odds / (1.0 + odds), SMALLEST), LARGEST)


class Shift:
    """A number that is added to the logits of chances; it follows what comes true, by logistic regression online."""

    def __init__(self) -> None:
        self.value = 0.0

    def corrected(self, chances: Iterable[float]) -> list[float]:
        """`shifted` by this number, of chances that are 0 or from `SMALLEST` to `LARGEST`."""
        if not self.value:
            return list(chances)
        factor = math.exp(self.value)
        all_odds = [factor * chance / (1.0 - chance) for chance in chances]
        return [LARGEST if odds > LARGEST_ODDS else odds / (1.0 + odds) for odds in all_odds]

    def learn(self, said: Iterable[int], expected: Iterable[int], chances: Iterable[float]) -> None:
        """Compare what was said with what was expected with these corrected chances, up to the first that was wrong."""
        for token, foretold, chance in zip(said, expected, chances, strict=False):
            if not chance > 0:
                break
            right = token == foretold
            self.value = min(max(self.value + RATE * (right - chance), -FARTHEST), FARTHEST)
            if not right:
                break
