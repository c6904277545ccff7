"""Where a text was before as it is now: the latest occurrence of its longest suffix, and what followed it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

REACH = 1 << 16  # tokens from the end that are looked at
FEW = 16  # places that are looked at one by one


class Match(NamedTuple):
    """length: tokens of the longest suffix that occurs before; 0: none.  start: of what followed it there."""

    length: int
    start: int


def longest_match(text: np.ndarray, longest: int, reach: int = REACH) -> Match:
    """The longest suffix of a text, of at most ``longest`` tokens, that also ends before its end.

    text: token ids [T], on the host.  Of equally long occurrences the last counts.  One pass over the last ``reach``
    tokens, then over those places that still match, until they are few enough to be looked at one by one: a few
    microseconds for a thousand tokens, and nothing is kept between two calls.
    """
    skipped = max(0, len(text) - reach)
    text = text[skipped:]
    places, length = (text[:-1] == text[-1:]).nonzero()[0], 1  # of last tokens of what matches, so many tokens
    while len(places) > FEW and length < longest:
        longer = places[places >= length]
        longer = longer[text[longer - length] == text[-1 - length]]
        if not len(longer):
            return Match(length, skipped + int(places[-1]) + 1)
        places, length = longer, length + 1
    best, suffix = Match(0, 0), text[-longest:].tolist()
    for place in reversed(places.tolist()):
        found = _same_at_the_end(text[max(0, place + 1 - longest) : place + 1].tolist(), suffix)
        if found > best.length:
            best = Match(found, skipped + place + 1)
        if found == longest:
            break
    return best


def _same_at_the_end(first: list[int], second: list[int]) -> int:
    """How many of the last tokens are the same."""
    same = 0
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if one != other:
            break
        same += 1
    return same


def continuation(text: np.ndarray, match: Match, count: int) -> np.ndarray:
    """The next tokens if the text goes on as it did there, int64 [count].

    Where the end of the text is reached they go on with themselves: a loop continues.
    """
    period = len(text) - match.start
    return text[match.start + np.arange(count) % period].astype(np.int64)
