"""How likely it is that a text which is as it was before goes on as it did: by the length of the match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# To begin with: what a request shows moves them.  `python -m benchmarks.copy_chances` counts those of a target.
ROUGHLY = (0.12, 0.35, 0.55, 0.66, 0.74, 0.80, 0.84, 0.87, 0.89, 0.91, 0.92, 0.93, 0.94, 0.95, 0.95, 0.96)


@dataclass(frozen=True)
class CopyTable:
    """chances: of the next token, by the number of tokens that match, from 1 on; longer matches are as the last."""

    chances: tuple[float, ...] = ROUGHLY

    @property
    def longest(self) -> int:
        """Tokens of a match that tell anything."""
        return len(self.chances)

    def along(self, length: int, count: int) -> np.ndarray:
        """r_1..r_m of so many tokens after a match: each that is copied makes the match one longer."""
        if length == 0:
            return np.zeros(count, dtype=np.float32)
        rows = np.minimum(length + np.arange(count), self.longest) - 1
        return np.asarray(self.chances, dtype=np.float32)[rows]
