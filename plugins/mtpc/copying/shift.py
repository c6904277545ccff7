"""Stated chances, corrected by what came of them in the request at hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

RATE, FARTHEST = 0.1, 3.0  # a step of the shift, and how far it may go
SMALLEST, LARGEST = 1e-6, 0.995  # no chance is 1: what has always been right may be wrong next


class Shift:
    """A number that is added to the logits of chances; it follows what comes true, by logistic regression online."""

    def __init__(self) -> None:
        self.value = 0.0

    def corrected(self, chances: np.ndarray) -> np.ndarray:
        """Of chances in [0, 1], float32 of the same shape; none stays none."""
        odds = np.clip(chances, SMALLEST, LARGEST).astype(np.float64)
        odds = odds / (1.0 - odds) * np.exp(self.value)
        return np.where(chances > 0, np.minimum(odds / (1.0 + odds), LARGEST), 0.0).astype(np.float32)

    def learn(self, said: Iterable[int], expected: Iterable[int], chances: Iterable[float]) -> None:
        """Compare what was said with what was expected with these corrected chances, up to the first that was wrong."""
        for token, foretold, chance in zip(said, expected, chances, strict=False):
            if chance == 0:
                break
            right = bool(token == foretold)
            self.value = min(max(self.value + RATE * (right - float(chance)), -FARTHEST), FARTHEST)
            if not right:
                break
