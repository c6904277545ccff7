"""Cells of the joint distribution of an output's first tokens, as fine as the number of samples allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

EXPECTED = 5.0  # the usual minimum expected count of a cell

Window = tuple[int, ...]
Following = Callable[[Sequence[Window]], Sequence[Mapping[int, float] | None]]


def cells(following: Following, length: int, samples: int, expected: float = EXPECTED) -> dict[Window, float]:
    """Partition all windows (token sequences of one length) into cells, and compute the probability of each.

    A key of ``length`` tokens is one window.  A shorter key is the cell of all windows that begin with it and with no
    longer key.

    Args:
        following: Returns the next-token probabilities after each of several prefixes of equal length.  Tokens that it
            leaves out share the remainder to 1; None means that nothing is known.
        length: Tokens of a window.
        samples: Number of samples that will be counted.
        expected: Minimum expected count of a cell; only the cell of the empty key may have less.

    Returns:
        The probability of each cell; the sum is 1.
    """
    level: dict[Window, float] = {(): 1.0}
    remainders: dict[Window, float] = {}
    for _ in range(length):
        longer: dict[Window, float] = {}
        for (start, mass), probs in zip(level.items(), following(list(level)), strict=True):
            joint = {token: mass * p for token, p in (probs or {}).items()}
            large = {token: p for token, p in joint.items() if p * samples >= expected}
            longer |= {(*start, token): p for token, p in large.items()}
            remainders[start] = mass - sum(large.values())
        level = longer
    for start in sorted(remainders, key=len, reverse=True):  # a cell that is too rare joins the next shorter key
        if start and remainders[start] * samples < expected:
            remainders[start[:-1]] += remainders.pop(start)
    return remainders | level


def count_windows(windows: Iterable[Window], table: Mapping[Window, float]) -> Counter[Window]:
    """Count the windows in each cell.

    Args:
        windows: Observed windows.
        table: Cells, as `cells` returns them.

    Returns:
        The number of windows by the key of their cell.
    """
    longest = max(map(len, table))
    counts: Counter[Window] = Counter()
    for window in windows:
        counts[next(key for n in range(longest, -1, -1) if (key := window[:n]) in table)] += 1
    return counts
