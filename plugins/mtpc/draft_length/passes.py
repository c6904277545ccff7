"""A draft that a drafter makes pass by pass: whether it goes on, by what it has drafted in this step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import mul

from mtpc.draft_length.choice import Prices
from mtpc.prompt_lookup.request import Proposal


class Enough(Exception):  # noqa: N818  (nothing is wrong)
    """Ends an engine's loop of passes where one more is not worth its time."""


class Row:
    """The draft of one request, of at most so many tokens.

    reached: the chances that its tokens are accepted with those before.  copies: whether there is something to copy,
    and all of its tokens are as that.  typical: the chance of the drafter's next token.
    """

    def __init__(self, copied: Proposal, longest: int, typical: float) -> None:
        self.reached: list[float] = []
        self.tokens, self.chances = (each[:longest] for each in copied)
        self.copies, self.typical = bool(self.chances[0]), typical

    def drafted(self, token: int, chance: float) -> None:
        """One more token, and the chance that it is right where those before it are."""
        done = len(self.reached)
        self.copies = self.copies and done < len(self.tokens) and token == self.tokens[done]
        self.reached.append(chance * (self.reached[-1] if done else 1.0))

    def ended(self) -> list[float]:
        """The chances where the drafter drafts no more: what was copied so far goes on being copied."""
        if not self.copies:
            return self.reached
        first, *rest = accumulate([self.reached[-1], *self.chances[len(self.reached) :]], mul)
        return [*self.reached[:-1], first, *rest]

    def gone_on(self) -> list[float]:
        """The same after one more pass, as it is foreseen."""
        copied = self.chances[len(self.reached) :] if self.copies else []
        following = [max([self.typical, *copied[:1]]), *copied[1:]]
        return [*self.reached, *list(accumulate([self.reached[-1], *following], mul))[1:]]


class Passes:
    """The drafts of a batch.

    rows: one of each request that gets a draft, None of others.  prices: of steps of the batch.  spent: by drafted
    tokens, what the drafter has taken.  trust: see `Prices.best`.
    """

    def __init__(self, rows: Sequence[Row | None], prices: Prices, spent: Callable[[int], float], trust: float) -> None:
        self.rows, self.prices, self.spent, self.trust, self.done = rows, prices, spent, trust, 0

    def drafted(self, tokens: Iterable[int], chances: Iterable[float]) -> None:
        """A pass has drafted one more token of each request."""
        self.done += 1
        for row, token, chance in zip(self.rows, tokens, chances, strict=True):
            if row is not None:
                row.drafted(token, chance)

    def go_on(self) -> bool:
        """Whether one more pass brings more tokens for the time."""
        rows = [row for row in self.rows if row is not None]
        ended, _ = self.prices.best([row.ended() for row in rows], self.spent(self.done), self.trust)
        gone_on, _ = self.prices.best([row.gone_on() for row in rows], self.spent(self.done + 1), self.trust)
        return gone_on > ended
