"""Prompt lookup on the host: the latest earlier occurrence of a text's longest suffix, and what followed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

REACH = 1 << 16  # tokens at the end of a prompt that are indexed, and all tokens after it
NO_TOKEN = -2  # stands before the first token; no text contains it
INDEXED_AT_ONCE = 2048  # tokens indexed in one call, from the end of a prompt backward
MAX_OCCURRENCES = 64  # earlier occurrences of the last two tokens that are compared, the latest ones


class Match(NamedTuple):
    """An earlier occurrence of a text's suffix.

    Attributes:
        length: Matching tokens; 0: there is no match.
        start: Index of the token that followed the occurrence.
    """

    length: int
    start: int


class History:
    """A growing text with an index of where each token and each pair of tokens was last.

    Construct it with the prompt, `append` tokens as they are emitted, then call `longest_match` and `continuation`.
    A match is found in a few microseconds, whatever the length of the text.
    Each appended token costs a fraction of a microsecond and about 200 bytes.
    All requests of a batch wait for that, so a long prompt is indexed backward from its end, one part per `append`.
    Text that is not indexed yet does not match.

    Attributes:
        tokens: Token ids of the text.

    Args:
        tokens: The text at first.
        reach: Tokens at the end of that text that are indexed in the end.
        at_once: Tokens indexed per call.
    """

    def __init__(self, tokens: Sequence[int] = (), reach: int = REACH, at_once: int = INDEXED_AT_ONCE) -> None:
        self.tokens: list[int] = []
        self._token_at: dict[int, int] = {}  # last position of each token
        self._pair_at: dict[int, int] = {}  # last position of each pair's second token
        self._at_once = max(2, at_once)
        self._oldest = max(0, len(tokens) - reach)  # first position that will be indexed
        self._first = max(self._oldest, len(tokens) - self._at_once)  # first position indexed so far
        # First position of each pair, until all of the text is indexed.
        self._pair_first: dict[int, int] | None = {} if self._first > self._oldest else None
        self._pair_before: list[int] = [-1] * self._first  # by position: the previous one of the same pair
        self._append(tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """Append tokens; the last token of the text is indexed once another follows it."""
        self._append(tokens)
        if self._pair_first is not None:
            self._look_further_back(self._pair_first)

    def _append(self, tokens: Sequence[int]) -> None:
        text, token_at, pair_at, pair_before = self.tokens, self._token_at, self._pair_at, self._pair_before
        text.extend(tokens)
        known, end, pair_first = len(pair_before), len(text) - 1, self._pair_first
        before = text[known - 1] if known > self._first else NO_TOKEN
        for position, token in enumerate(text[known:end], known):
            pair = (before << 32) + token
            earlier = pair_at.get(pair, -1)
            if earlier < 0 and pair_first is not None:
                pair_first[pair] = position
            pair_before.append(earlier)
            pair_at[pair] = token_at[token] = position
            before = token

    def _look_further_back(self, pair_first: dict[int, int]) -> None:
        """Index the next earlier part of the text, as if indexing had started there."""
        text, token_at, pair_at, pair_before = self.tokens, self._token_at, self._pair_at, self._pair_before
        first = max(self._oldest, self._first - self._at_once)
        for position in range(self._first, first, -1):
            token_at.setdefault(text[position], position)
            pair = (text[position - 1] << 32) + text[position]
            later = pair_first.get(pair, -1)
            if later < 0:
                pair_at[pair] = position
            else:
                pair_before[later] = position
            pair_first[pair] = position
        token_at.setdefault(text[first], first)
        self._first = first
        if first == self._oldest:
            self._pair_first = None

    def longest_match(self, longest: int) -> Match:
        """Find the longest suffix that also occurs earlier.

        The latest of equally long occurrences is returned.  Of many occurrences of the last two tokens only the latest
        `MAX_OCCURRENCES` are compared.

        Args:
            longest: Tokens of a match at most.

        Returns:
            The match.
        """
        text, end = self.tokens, len(self.tokens) - 1
        if end < 1:
            return Match(0, 0)
        position = self._pair_at.get((text[end - 1] << 32) + text[end], -1)
        if position < 0 or longest < 2:
            position = self._token_at.get(text[end], -1)
            return Match(1, position + 1) if position >= 0 else Match(0, 0)
        best, start, first = 0, 0, self._first
        for _ in range(MAX_OCCURRENCES):
            length = 2
            while length < longest and length <= position - first and text[position - length] == text[end - length]:
                length += 1
            if length > best:
                best, start = length, position + 1
            if length == longest or (position := self._pair_before[position]) < 0:
                break
        return Match(best, start)

    def continuation(self, match: Match, count: int) -> list[int]:
        """Return the tokens that follow a match; at the end of the text they repeat, as a loop would.

        Args:
            match: A match of at least one token.
            count: Number of tokens.
        """
        ahead = self.tokens[match.start : match.start + count]
        return ahead if len(ahead) == count else (ahead * (1 + count // len(ahead)))[:count]
