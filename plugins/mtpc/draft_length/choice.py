"""How long the drafts of a batch are: as long as what they bring is worth the time that they take.

This is worked out between two steps of a model, where what is done at all counts, not how often: so it is plain
arithmetic on few numbers, those of tokens that may be worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from mtpc.draft_length.cost import StepCost

# Of each request's draft, the chances that each of its tokens is accepted with all before it: they fall.
Chances = Sequence[Sequence[float]]
Best = tuple[float, list[float]]  # see `Prices.best`


class Prices:
    """What steps of so many requests take, at hand.

    plain: one without drafts.  drafted: by drafted tokens in all, from none to one more than ``most``.  drafting: the
    drafter's own draft.
    """

    def __init__(self, cost: StepCost, rows: int, most: int) -> None:
        self.cost, self.rows = cost, rows
        self.plain, self.drafting = cost.step(rows, 0), cost.draft(rows)
        self.drafted = [self.plain, *cost.verify(rows, most + 1).tolist()]
        self._least = min(after - before for before, after in pairwise(self.drafted))

    def undrafted_rate(self, spent: float) -> float:
        """Tokens of a step without drafts, over what it takes."""
        return self.rows / (self.plain + spent)

    def best(self, reached: Chances, spent: float = 0.0, trust: float = 1.0) -> Best:
        """The most tokens for the time that any drafts bring, and the chances of their tokens, the largest first.

        spent: what the step has cost already.  trust: what part of chances counts.  With lengths k_b a step brings
        B + sum_b sum_{i <= k_b} reached[b][i] tokens, and what it takes depends on sum_b k_b alone: the best set of any
        size is that of the largest chances, which are prefixes of the rows.  A token whose chance is not worth what the
        cheapest one takes, even in a step without drafts, is in no such set.
        """
        rate, brings, drafts = self.undrafted_rate(spent), float(self.rows), 0
        least = rate * self._least / trust
        likely = sorted([chance for row in reached for chance in row if chance > least], reverse=True)
        for count, chance in enumerate(likely, start=1):
            brings += trust * chance
            now = brings / (self.drafted[count] + spent)
            if now > rate:
                rate, drafts = now, count
        return rate, likely[:drafts]

    @cached_property
    def of_each_token(self) -> list[float]:
        """What each drafted token of a request alone adds, where some are drafted.

        Where tokens that come after it add less, it adds the mean with as many of these as make that least.
        """
        no_token = self.drafted[1] - (self.cost.read(2) - self.cost.read(1))  # a step with drafts, of none
        times = [no_token, *self.drafted[1:-1]]
        return [
            min((times[end] - time) / (end - begin) for end in range(begin + 1, len(times)))
            for begin, time in enumerate(times[:-1])
        ]


class Lengths(NamedTuple):
    """of: drafted tokens of each request.  rate: tokens that such a step brings, over what it takes."""

    of: list[int]
    rate: float


def best_lengths(
    reached: Chances, prices: Prices, spent: float = 0.0, worth: float = 1.0, trust: float = 1.0
) -> Lengths:
    """The lengths of a batch's drafts that bring the most tokens for the time; see `Prices.best`.

    worth: how many times as much a step with drafts must bring as one without, or there are none.
    """
    return lengths_of(reached, prices.best(reached, spent, trust), prices.undrafted_rate(spent), worth)


def lengths_of(reached: Chances, best: Best, undrafted: float, worth: float) -> Lengths:
    """`best_lengths`, where `Prices.best` and the rate of a step without drafts are known."""
    rate, chosen = best
    if not chosen or rate < worth * undrafted:
        return Lengths([0] * len(reached), undrafted)
    least, lengths = chosen[-1], []
    ties = chosen.count(least)  # of equal ones the first rows' first
    for row in reached:
        length = 0
        for chance in row:
            if chance < least or (chance == least and not ties):
                break
            ties -= chance == least
            length += 1
        lengths.append(length)
    return Lengths(lengths, rate)


class Common(NamedTuple):
    """length: of all drafts of a batch.  rate: tokens that such a step brings, over what it takes."""

    length: int
    rate: float


def best_common_length(
    foreseen: Chances,
    longest: int,
    prices: Prices,
    spent: Sequence[float],
    worth: float = 1.0,
    trust: float = 1.0,
    shortest: int = 1,
) -> Common:
    """As `best_lengths`, where all drafts of a batch have one length, 0 where no draft is worth it.

    spent: by length, 0 to the longest, what drafting has cost then.  shortest: the least that a draft may have.
    """
    rows, brings = prices.rows, float(prices.rows)
    best, most = 0, 0.0
    for length in range(1, longest + 1):
        brings += trust * sum(row[length - 1] for row in foreseen if len(row) >= length)
        rate = brings / (prices.drafted[rows * length] + spent[length])
        if length >= shortest and rate > most:
            best, most = length, rate
    undrafted = prices.undrafted_rate(spent[0])
    return Common(best, most) if most >= worth * undrafted else Common(0, undrafted)


def least_chance(best: Best, longest: int, prices: Prices) -> list[float]:
    """What chances to be reached make tokens worth their verification, where the best of what is foreseen is this.

    By place in a draft, 1 to the longest; above 1 where nothing is worth it.  prices: by which that is the best.

    Drafts that are drawn may be cut where they fall below it, for it is known before they are: whether a token is
    judged must not depend on which it is, nor on what was drawn after it.  Of one request the token's own place says
    what it takes, of many how many there are of all.
    """
    rate, chosen = best
    if not chosen:
        return [2.0] * longest
    if prices.rows == 1:
        return [rate * time for time in prices.of_each_token[:longest]]
    drafts = len(chosen)
    return [rate * (prices.drafted[drafts + 1] - prices.drafted[drafts])] * longest
