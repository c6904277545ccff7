"""Where a text was before as it is now: the latest occurrence of its longest suffix, and what followed it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

REACH = 1 << 16  # tokens from the end that are looked at


class Match(NamedTuple):
    """length: tokens of the longest suffix that occurs before; 0: none.  start: of what followed it there."""

    length: int
    start: int


def longest_match(text: np.ndarray, longest: int, reach: int = REACH) -> Match:
    """The longest suffix of a text, of at most ``longest`` tokens, that also ends before its end.

    text: token ids [T], on the host.  Of equally long occurrences the last counts.  One pass over the last ``reach``
    tokens, then as many over those places that still match as the match is long: a few microseconds for a thousand
    tokens, and nothing is kept between two calls.
    """
    skipped = max(0, len(text) - reach)
    text = text[skipped:]
    matching, best, length = np.flatnonzero(text[:-1] == text[-1:]), 0, 0
    while len(matching):
        best, length = int(matching[-1]), length + 1
        if length == longest:
            break
        matching = matching[matching >= length]
        matching = matching[text[matching - length] == text[-1 - length]]
    return Match(length, skipped + best + 1)


def continuation(text: np.ndarray, match: Match, count: int) -> np.ndarray:
    """The next tokens if the text goes on as it did there, int64 [count].

    Where the end of the text is reached they go on with themselves: a loop continues.
    """
    period = len(text) - match.start
    return text[match.start + np.arange(count) % period].astype(np.int64)
