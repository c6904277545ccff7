"""Online calibration of predicted probabilities by what is observed in one request."""

from __future__ import annotations

import math
from collections.abc import Iterable

LEARNING_RATE, MAX_OFFSET = 0.1, 3.0
SMALLEST, LARGEST = 1e-6, 0.995  # no probability is 1: a prediction that was always right may fail next
LARGEST_ODDS = LARGEST / (1.0 - LARGEST)


def limited(chance: float) -> float:
    """Return a probability from `SMALLEST` to `LARGEST`."""
    return min(max(chance, SMALLEST), LARGEST)


class Calibration:
    """An offset on the logits of probabilities, learned by online logistic regression.

    Call `corrected` on predicted probabilities, then `learn` with what was emitted.

    Attributes:
        offset: Added to logits; 0 at first, at most `MAX_OFFSET` in size.
    """

    def __init__(self) -> None:
        self.offset = 0.0

    def corrected(self, chances: Iterable[float]) -> list[float]:
        """Return calibrated probabilities.

        Args:
            chances: Probabilities that are 0 or from `SMALLEST` to `LARGEST`.
        """
        if not self.offset:
            return list(chances)
        factor = math.exp(self.offset)
        all_odds = [factor * chance / (1.0 - chance) for chance in chances]
        return [LARGEST if odds > LARGEST_ODDS else odds / (1.0 + odds) for odds in all_odds]

    def learn(self, emitted: Iterable[int], expected: Iterable[int], chances: Iterable[float]) -> None:
        """Update from predictions and outcomes, up to the first wrong prediction.

        Args:
            emitted: Tokens that the target emitted.
            expected: Tokens that were predicted for the same positions.
            chances: Calibrated probabilities of the predictions; learning stops at a 0.
        """
        for token, predicted, chance in zip(emitted, expected, chances, strict=False):
            if not chance > 0:
                break
            correct = token == predicted
            self.offset = min(max(self.offset + LEARNING_RATE * (correct - chance), -MAX_OFFSET), MAX_OFFSET)
            if not correct:
                break
