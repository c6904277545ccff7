"""Steps in which nobody looks what might be drafted: looking takes time, and after many looks in vain misses little."""

from __future__ import annotations

PATIENCE, LONGEST = 4, 16  # looks in a row without a draft, before there is a rest; steps of a rest


class Rest:
    """Steps without a look after looks in vain: one more after each, from `PATIENCE` on, and at most `LONGEST`."""

    def __init__(self) -> None:
        self._in_vain = self._left = 0

    def step(self) -> bool:
        """Another step begins; whether it goes by without a look."""
        rests = self._left > 0
        self._left -= rests
        return rests

    def looked(self, drafted: bool) -> None:
        """What became of a look."""
        self._in_vain = 0 if drafted else self._in_vain + 1
        self._left = min(max(0, self._in_vain - PATIENCE), LONGEST)
