"""Draft lengths of a batch that bring the most tokens for their time.

This runs on the host between two target forward passes, where each call costs more than each number.
It is therefore plain arithmetic on a few numbers, those of tokens that may be worth drafting.

Costs are relative to a step of one request without a draft; rates are tokens per unit of cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from mtpc.draft_length.cost import StepCost

# By request: the probability that each draft token is accepted with all before it, in falling order.
Probabilities = Sequence[Sequence[float]]
BestDrafts = tuple[float, list[float]]  # rate and probabilities; see `BatchCosts.best`


class BatchCosts:
    """Costs of decoding steps at one batch size, computed once.

    Attributes:
        cost: Costs of decoding steps.
        rows: Requests of the batch.
        plain: Cost of a step without drafts.
        drafting: Cost of the drafter's own draft.
        drafted: Cost of a step by the number of draft tokens in all requests, from 0 to one more than ``most``.

    Args:
        cost: Costs of decoding steps.
        rows: Requests of the batch.
        most: Draft tokens of all requests at most.
    """

    def __init__(self, cost: StepCost, rows: int, most: int) -> None:
        self.cost, self.rows = cost, rows
        self.plain, self.drafting = cost.step(rows, 0), cost.draft(rows)
        self.drafted = [self.plain, *cost.verify(rows, most + 1).tolist()]
        self._least = min(after - before for before, after in pairwise(self.drafted))

    def plain_rate(self, spent: float) -> float:
        """Return tokens per cost of a step without drafts.

        Args:
            spent: Cost of what was already drafted in this step.
        """
        return self.rows / (self.plain + spent)

    def best(self, reached: Probabilities, spent: float = 0.0) -> BestDrafts:
        """Choose the draft tokens with the highest rate.

        With lengths k_b a step brings B + sum_b sum_{i <= k_b} reached[b][i] tokens; its cost depends on sum_b k_b.
        The best set of any size therefore consists of the largest probabilities, which are prefixes of the rows.
        A probability below what the cheapest token costs, at the rate without drafts, is in no such set.

        Args:
            reached: Probability that each draft token is accepted with all before it, by request.
            spent: Cost of what was already drafted in this step.

        Returns:
            The rate, and the probabilities of the chosen tokens, the largest first.
        """
        rate, brings, drafts = self.plain_rate(spent), float(self.rows), 0
        least = rate * self._least
        likely = sorted([chance for row in reached for chance in row if chance > least], reverse=True)
        for count, chance in enumerate(likely, start=1):
            brings += chance
            now = brings / (self.drafted[count] + spent)
            if now > rate:
                rate, drafts = now, count
        return rate, likely[:drafts]

    @cached_property
    def cost_by_token(self) -> list[float]:
        """What each draft token of a single request adds to the cost, if some are drafted.

        Where later tokens add less, this is the mean over as many of these as make it smallest.
        """
        no_token = self.drafted[1] - (self.cost.read(2) - self.cost.read(1))  # a step with drafts of length 0
        times = [no_token, *self.drafted[1:-1]]
        return [
            min((times[end] - time) / (end - begin) for end in range(begin + 1, len(times)))
            for begin, time in enumerate(times[:-1])
        ]


class ChosenLengths(NamedTuple):
    """Chosen draft lengths of a batch.

    Attributes:
        of: Draft tokens of each request.
        rate: Tokens per cost of such a step.
    """

    of: list[int]
    rate: float


def best_lengths(reached: Probabilities, costs: BatchCosts, spent: float = 0.0) -> ChosenLengths:
    """Choose the draft lengths of a batch that bring the most tokens for their time; see `BatchCosts.best`.

    Args:
        reached: Probability that each draft token is accepted with all before it, by request.
        costs: Costs at this batch size.
        spent: Cost of what was already drafted in this step.

    Returns:
        The lengths and their rate.
    """
    return lengths_of(reached, costs.best(reached, spent))


def lengths_of(reached: Probabilities, best: BestDrafts) -> ChosenLengths:
    """Return the lengths for a set of tokens that `BatchCosts.best` chose.

    Args:
        reached: Probability that each draft token is accepted with all before it, by request.
        best: The chosen tokens and their rate.

    Returns:
        The lengths and their rate.
    """
    rate, chosen = best
    if not chosen:
        return ChosenLengths([0] * len(reached), rate)
    least, lengths = chosen[-1], []
    ties = chosen.count(least)  # of equal probabilities, those of the first rows are taken
    for row in reached:
        length = 0
        for chance in row:
            if chance < least or (chance == least and not ties):
                break
            ties -= chance == least
            length += 1
        lengths.append(length)
    return ChosenLengths(lengths, rate)


class ChosenCommonLength(NamedTuple):
    """Chosen length of all drafts of a batch.

    Attributes:
        length: Draft tokens of each request.
        rate: Tokens per cost of such a step.
    """

    length: int
    rate: float


def best_common_length(
    reached: Probabilities,
    longest: int,
    costs: BatchCosts,
    spent: Sequence[float],
    shortest: int = 1,
) -> ChosenCommonLength:
    """Choose one length for all drafts of a batch; 0 if no length is worth it.

    Args:
        reached: Probability that each draft token is accepted with all before it, by request.
        longest: Draft tokens at most.
        costs: Costs at this batch size.
        spent: Cost of drafting by length, from 0 to ``longest``.
        shortest: Draft tokens at least.

    Returns:
        The length and its rate.
    """
    rows, brings = costs.rows, float(costs.rows)
    best, most = 0, 0.0
    for length in range(1, longest + 1):
        brings += sum(row[length - 1] for row in reached if len(row) >= length)
        rate = brings / (costs.drafted[rows * length] + spent[length])
        if length >= shortest and rate > most:
            best, most = length, rate
    plain_rate = costs.plain_rate(spent[0])
    return ChosenCommonLength(best, most) if most >= plain_rate else ChosenCommonLength(0, plain_rate)


def least_chance(best: BestDrafts, longest: int, costs: BatchCosts) -> list[float]:
    """Return the probability of being reached that makes a token worth its verification.

    Drafts that were sampled may be cut where they fall below it: it is known before they are sampled.
    Whether a token is verified must depend neither on the token itself nor on any token after it.
    For a single request the cost of a token depends on its position, for a batch on the number of all draft tokens.

    Args:
        best: The best drafts by predicted acceptance; see `BatchCosts.best`.
        longest: Draft tokens at most.
        costs: Costs by which these are the best.

    Returns:
        The probability by position, from 1 to ``longest``; above 1 where no draft is worth it.
    """
    rate, chosen = best
    if not chosen:
        return [2.0] * longest
    if costs.rows == 1:
        return [rate * time for time in costs.cost_by_token[:longest]]
    drafts = len(chosen)
    return [rate * (costs.drafted[drafts + 1] - costs.drafted[drafts])] * longest
