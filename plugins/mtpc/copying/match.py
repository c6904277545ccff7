"""Where a text was before as it is now: the latest occurrence of its longest suffix, and what followed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

REACH = 1 << 16  # tokens of a text, from its end, that are looked at; of one that grows, from where it began to
NOTHING = -2  # before the first token: what is in no text
PLACES = 64  # where its last two tokens were before, at most so many that are compared: the latest


class Match(NamedTuple):
    """length: tokens of the longest suffix that occurs before; 0: none.  start: of what followed it there."""

    length: int
    start: int


class History:
    """A text that only grows, and where each of its tokens and pairs of tokens was last.

    So that a match is found in a few microseconds, however long the text is: what is appended costs a fraction of one
    for each token, and some 200 bytes.

    tokens: its ids.
    """

    def __init__(self, tokens: Sequence[int] = (), reach: int = REACH) -> None:
        self.tokens: list[int] = []
        self._token_at: dict[int, int] = {}  # the last place of each token
        self._pair_at: dict[int, int] = {}  # and of each pair: that of its second token
        self._first = max(0, len(tokens) - reach)  # place that is looked at
        self._pair_before: list[int] = [-1] * self._first  # by place: the one before of the same pair
        self.append(tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """More of the text.  What it ends with is only looked up until something follows it."""
        text, token_at, pair_at, pair_before = self.tokens, self._token_at, self._pair_at, self._pair_before
        text.extend(tokens)
        known, end = len(pair_before), len(text) - 1
        before = text[known - 1] if known > self._first else NOTHING
        for place, token in enumerate(text[known:end], known):
            pair = (before << 32) + token
            pair_before.append(pair_at.get(pair, -1))
            pair_at[pair] = token_at[token] = place
            before = token

    def longest_match(self, longest: int) -> Match:
        """The longest suffix, of at most ``longest`` tokens, that also ends before the end.

        Of equally long occurrences the last counts.  Of more than `PLACES` that share two tokens the latest are looked
        at.
        """
        text, end = self.tokens, len(self.tokens) - 1
        if end < 1:
            return Match(0, 0)
        place = self._pair_at.get((text[end - 1] << 32) + text[end], -1)
        if place < 0 or longest < 2:
            place = self._token_at.get(text[end], -1)
            return Match(1, place + 1) if place >= 0 else Match(0, 0)
        best, start, first = 0, 0, self._first
        for _ in range(PLACES):
            length = 2
            while length < longest and length <= place - first and text[place - length] == text[end - length]:
                length += 1
            if length > best:
                best, start = length, place + 1
            if length == longest or (place := self._pair_before[place]) < 0:
                break
        return Match(best, start)

    def continuation(self, match: Match, count: int) -> list[int]:
        """The next tokens if the text goes on as it did there.

        Where the end of the text is reached they go on with themselves: a loop continues.
        """
        ahead = self.tokens[match.start : match.start + count]
        return ahead if len(ahead) == count else (ahead * (1 + count // len(ahead)))[:count]
