"""What became of drafts, by draft vocabulary, where the host knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Totals(NamedTuple):
    """Counts since the start; vocabularies are given by their numbers.

    drafts: by vocabulary, tokens that were verified and tokens that were accepted.
    moves: of requests from one vocabulary to another; None: from none, as they began.
    """

    drafts: Mapping[tuple[int, int, int], int]
    moves: Mapping[tuple[int | None, int], int]


class Counting(Protocol):
    """Whatever tells its totals, to a thread of its own; names: of the draft vocabularies."""

    names: tuple[str, ...]

    def totals(self) -> Totals:
        """The counts so far."""


class Tally:
    """Counts of a batch at a time; names: of the draft vocabularies."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.drafts = Counter[tuple[int, int, int]]()
        self.moves = Counter[tuple[int | None, int]]()

    def verified(self, drafts: Iterable[tuple[int, int, int]]) -> None:
        """Of each draft: its vocabulary, how many of its tokens were verified, and how many accepted."""
        self.drafts.update(drafts)

    def chose(self, before: Sequence[int | None], after: Sequence[int]) -> None:
        """Of each request: its vocabulary until now, and from now on."""
        self.moves.update(move for move in zip(before, after, strict=True) if move[0] != move[1])

    def totals(self) -> Totals:
        """The counts so far: copies of whole dictionaries, which nobody changes meanwhile."""
        return Totals(dict(self.drafts), dict(self.moves))
