"""Counts of drafts by draft vocabulary, kept on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Totals(NamedTuple):
    """Counts since the start; vocabularies are given by number.

    Attributes:
        drafts: Number of drafts by vocabulary, verified tokens and accepted tokens.
        moves: Number of requests by vocabulary before and after a change; None before: the request began.
    """

    drafts: Mapping[tuple[int, int, int], int]
    moves: Mapping[tuple[int | None, int], int]


class TallySource(Protocol):
    """A source of counts that another thread may read.

    Attributes:
        names: Names of the draft vocabularies, by number.
    """

    names: tuple[str, ...]

    def totals(self) -> Totals:
        """Return the counts so far."""


class Tally:
    """Counts of verified drafts and chosen vocabularies.

    Args:
        names: Names of the draft vocabularies, by number.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.drafts = Counter[tuple[int, int, int]]()
        self.moves = Counter[tuple[int | None, int]]()

    def count_drafts(self, drafts: Iterable[tuple[int, int, int]]) -> None:
        """Count drafts.

        Args:
            drafts: For each draft: its vocabulary, verified tokens and accepted tokens.
        """
        self.drafts.update(drafts)

    def count_choices(self, before: Sequence[int | None], after: Sequence[int]) -> None:
        """Count changes of the draft vocabulary.

        Args:
            before: Vocabulary of each request until now; None: the request is new.
            after: Vocabulary of each request from now on.
        """
        self.moves.update(move for move in zip(before, after, strict=True) if move[0] != move[1])

    def totals(self) -> Totals:
        """Return copies of the counts so far."""
        return Totals(dict(self.drafts), dict(self.moves))
