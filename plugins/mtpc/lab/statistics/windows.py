"""The joint distribution of a text's first tokens, in as many cells as a number of samples can tell apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from mtpc.lab.statistics.chi_square import Judged, chi_square

EXPECTED = 5.0  # the usual least expected count of a cell

Window = tuple[int, ...]
Following = Callable[[Sequence[Window]], Sequence[Mapping[int, float] | None]]


def cells(following: Following, length: int, samples: int, expected: float = EXPECTED) -> dict[Window, float]:
    """Probabilities of disjoint sets of windows that together are all windows.

    following: probabilities of the next tokens after each of some equally long beginnings; those that are left out
    share what is missing of 1, and None tells nothing.  A key of ``length`` tokens is one window; a shorter one stands
    for all windows that begin with it and with no longer key.  Every cell but the empty key expects at least
    ``expected`` of ``samples``.
    """
    level: dict[Window, float] = {(): 1.0}
    rests: dict[Window, float] = {}
    for _ in range(length):
        longer: dict[Window, float] = {}
        for (start, mass), probs in zip(level.items(), following(list(level)), strict=True):
            joint = {token: mass * p for token, p in (probs or {}).items()}
            large = {token: p for token, p in joint.items() if p * samples >= expected}
            longer |= {(*start, token): p for token, p in large.items()}
            rests[start] = mass - sum(large.values())
        level = longer
    for start in sorted(rests, key=len, reverse=True):  # what is too rare to be a cell joins the next shorter key
        if start and rests[start] * samples < expected:
            rests[start[:-1]] += rests.pop(start)
    return rests | level


def count_windows(windows: Iterable[Window], table: Mapping[Window, float]) -> Counter[Window]:
    """How many windows are in each cell of a table that `cells` has made."""
    longest = max(map(len, table))
    counts: Counter[Window] = Counter()
    for window in windows:
        counts[next(key for n in range(longest, -1, -1) if (key := window[:n]) in table)] += 1
    return counts


def judge_windows(windows: Iterable[Window], table: Mapping[Window, float], smallest: float = EXPECTED) -> Judged:
    """Chi-square of observed windows under a table that `cells` has made."""
    return chi_square(count_windows(windows, table), table, smallest)
