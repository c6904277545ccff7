"""Where a text was before as it is now: the latest occurrence of its longest suffix, and what followed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

REACH = 1 << 16  # tokens of a text, from its end, that are looked at; of one that grows, from where it began to
NOTHING = -2  # before the first token: what is in no text
AT_ONCE = 2048  # tokens that are indexed in one step: of a long prompt the last ones first, then as many before them
PLACES = 64  # where its last two tokens were before, at most so many that are compared: the latest


class Match(NamedTuple):
    """length: tokens of the longest suffix that occurs before; 0: none.  start: of what followed it there."""

    length: int
    start: int


class History:
    """A text that only grows, and where each of its tokens and pairs of tokens was last.

    So that a match is found in a few microseconds, however long the text is: what is appended costs a fraction of one
    for each token, and some 200 bytes.  All requests of a batch wait for that.  So a long text that it begins with is
    indexed from its end, a part with each `append`; until all is, what lies before does not match.

    tokens: its ids.  reach: of those at the beginning, how many are looked at in the end.  at_once: in one call.
    """

    def __init__(self, tokens: Sequence[int] = (), reach: int = REACH, at_once: int = AT_ONCE) -> None:
        self.tokens: list[int] = []
        self._token_at: dict[int, int] = {}  # the last place of each token
        self._pair_at: dict[int, int] = {}  # and of each pair: that of its second token
        self._at_once = max(2, at_once)
        self._reaches = max(0, len(tokens) - reach)  # the first place that is looked at in the end
        self._first = max(self._reaches, len(tokens) - self._at_once)  # and now
        # The first place of each pair, while more places before it are to come.
        self._pair_first: dict[int, int] | None = {} if self._first > self._reaches else None
        self._pair_before: list[int] = [-1] * self._first  # by place: the one before of the same pair
        self._append(tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """More of the text.  What it ends with is only looked up until something follows it."""
        self._append(tokens)
        if self._pair_first is not None:
            self._look_further_back(self._pair_first)

    def _append(self, tokens: Sequence[int]) -> None:
        text, token_at, pair_at, pair_before = self.tokens, self._token_at, self._pair_at, self._pair_before
        text.extend(tokens)
        known, end, pair_first = len(pair_before), len(text) - 1, self._pair_first
        before = text[known - 1] if known > self._first else NOTHING
        for place, token in enumerate(text[known:end], known):
            pair = (before << 32) + token
            earlier = pair_at.get(pair, -1)
            if earlier < 0 and pair_first is not None:
                pair_first[pair] = place
            pair_before.append(earlier)
            pair_at[pair] = token_at[token] = place
            before = token

    def _look_further_back(self, pair_first: dict[int, int]) -> None:
        """Index the tokens before the first one that is looked at, as if all were indexed from there on."""
        text, token_at, pair_at, pair_before = self.tokens, self._token_at, self._pair_at, self._pair_before
        first = max(self._reaches, self._first - self._at_once)
        for place in range(self._first, first, -1):
            token_at.setdefault(text[place], place)
            pair = (text[place - 1] << 32) + text[place]
            later = pair_first.get(pair, -1)
            if later < 0:
                pair_at[pair] = place
            else:
                pair_before[later] = place
            pair_first[pair] = place
        token_at.setdefault(text[first], first)
        self._first = first
        if first == self._reaches:
            self._pair_first = None

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
