"""What is left out of a distilled text: repetition, and what has been said before (FastMTP paper, appendix A)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

GRAM = 8  # tokens
MAX_REPEATED_SHARE = 0.5


def repeated_share(tokens: Sequence[int]) -> float:
    """Share of the runs of eight tokens that occurred before in the same text."""
    runs = [tuple(tokens[i : i + GRAM]) for i in range(len(tokens) - GRAM + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Whether more than half of a text says again what it has said."""
    return repeated_share(tokens) > MAX_REPEATED_SHARE


class NearDuplicates:
    """Finds texts that share most of their runs of three words with an earlier one (MinHash, Broder 1997).

    Two texts whose sets of runs overlap by J (Jaccard) are taken for the same with probability 1 - (1 - J^4)^16: 2 % at
    J = 0.2, one half at 0.45, 99.98 % at 0.8.
    """

    BANDS, ROWS = 16, 4
    PRIME = (1 << 31) - 1

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        size = self.BANDS * self.ROWS
        self._factors = generator.integers(1, self.PRIME, (size, 1), dtype=np.uint64)
        self._offsets = generator.integers(0, self.PRIME, (size, 1), dtype=np.uint64)
        self._seen: set[tuple[int, bytes]] = set()

    def _keys(self, text: str) -> list[tuple[int, bytes]]:
        words = re.findall(r"\w+", text.lower())
        runs = {" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))}
        hashes = np.array([zlib.crc32(run.encode()) for run in sorted(runs)], dtype=np.uint64) % self.PRIME
        least = ((self._factors * hashes + self._offsets) % self.PRIME).min(1)  # [BANDS * ROWS]
        return [(band, rows.tobytes()) for band, rows in enumerate(least.reshape(self.BANDS, self.ROWS))]

    def add(self, text: str) -> bool:
        """Remember a text; whether it is new."""
        keys = self._keys(text)
        new = self._seen.isdisjoint(keys)
        self._seen.update(keys)
        return new
