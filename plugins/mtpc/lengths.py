"""How long the drafts of a batch are: as long as what they bring is worth the time that they take."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

Point = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1 << 20)], Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]],
    Field(strict=False),
]
Curve = Annotated[tuple[Point, ...], Field(min_length=1, max_length=64, strict=False)]


class StepCost(BaseModel):
    """What steps of the engine take, in steps that say one token to one request without a draft.

    Points of curves that are straight between them, level before the first, and go on after the last as before it.
    plain: a step without drafts, by requests.  verifying: one with drafts for one request, by tokens that it reads, the
    pending one and drafts; drafting apart.  What requests cost beside their tokens is in ``plain``: in a step of
    more of them, drafts add what as many tokens add here from the number of requests on, and what any drafts add.
    drafting: the drafter's own draft, by requests.  sampled: steps in which some request has a temperature above 0, in
    the same unit; None: they cost the same.  fixed: whether this stands as it is, or is corrected by what steps take in
    the server, see `mtpc.step_times`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    plain: Curve = ((1, 1.0), (16, 2.2))
    verifying: Curve = ((2, 1.12), (11, 1.45), (64, 4.41))
    drafting: Curve = ((1, 0.23), (16, 1.0))
    sampled: StepCost | None = None
    fixed: bool = False

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("plain", "verifying", "drafting"):
            if any(first >= second for (first, _), (second, _) in pairwise(getattr(self, name))):
                raise ValueError(f"the numbers of {name} must rise")
        if not self.plain[0][1] or not self.verifying[0][1]:
            raise ValueError("a step takes time")
        if self.sampled is not None and self.sampled.sampled is not None:
            raise ValueError("sampled holds no sampled")
        return self

    def of(self, greedy: bool) -> StepCost:
        """Of a batch all of whose requests have a temperature of 0, or of another."""
        return self if greedy or self.sampled is None else self.sampled

    def corrected(self, verifying: float, drafting: float, look: float = 0.0) -> StepCost:
        """The same, except that what drafts add to a step, and what drafting takes, are so many times as much.

        look: what any drafts add besides.
        """
        plain = self.step(1, 0)
        verified = ((tokens, plain + verifying * (time - plain) + look) for tokens, time in self.verifying)
        drafted = ((rows, drafting * time) for rows, time in self.drafting)
        return self.model_copy(update={"verifying": tuple(verified), "drafting": tuple(drafted), "sampled": None})

    def step(self, rows: int, drafts: int) -> float:
        """One of a batch with so many drafted tokens in all, drafting apart."""
        return float(self.verify(rows, drafts)[-1] if drafts else _along(self.plain, rows, 1)[0])

    def draft(self, rows: int) -> float:
        """The drafter's own draft of so many requests."""
        return float(_along(self.drafting, rows, 1)[0])

    def read(self, tokens: int) -> float:
        """``verifying`` at a number of tokens."""
        return float(_along(self.verifying, tokens, 1)[0])

    def verify(self, rows: int, most: int) -> np.ndarray:
        """Steps of a batch with 1 to so many drafted tokens, float64 [most]: never less than one without."""
        return _verify(self, rows, most)


# A chat model of 135 M parameters on two cores of a CPU, in steps of a server that can draft: where a user has not
# measured.
MEASURED = StepCost(sampled=StepCost(verifying=((2, 1.13), (11, 1.5), (64, 5.0)), drafting=((1, 0.27), (16, 1.1))))


@lru_cache(maxsize=4096)
def _along(curve: Curve, first: int, count: int) -> np.ndarray:
    """A curve at so many successive numbers."""
    at, (places, values) = np.arange(first, first + count), np.array(curve).T
    beyond = 0.0
    if len(curve) > 1:
        beyond = (values[-1] - values[-2]) / (places[-1] - places[-2]) * (at - places[-1]).clip(0)
    return np.asarray(np.interp(at, places, values) + beyond)


@lru_cache(maxsize=4096)
def _verify(cost: StepCost, rows: int, most: int) -> np.ndarray:
    """See `StepCost.verify`."""
    plain, any_drafts = cost.step(rows, 0), cost.read(1) - cost.step(1, 0)
    read = _along(cost.verifying, rows, most + 1)
    return np.maximum(plain + any_drafts + read[1:] - read[0], plain)


@lru_cache(maxsize=4096)
def _of_each_token(cost: StepCost, most: int) -> np.ndarray:
    """What each drafted token of a request alone adds, where some are drafted: float64 [most].

    Where tokens that come after it add less, it adds the mean with as many of these as make that least.
    """
    first = cost.step(1, 1) - (cost.read(2) - cost.read(1))
    times = np.array([first, *cost.verify(1, most)])
    begin, end = np.triu_indices(most + 1, k=1)
    means = np.full((most, most + 1), np.inf)
    means[begin, end] = (times[end] - times[begin]) / (end - begin)
    return np.asarray(means.min(1))


class Lengths(NamedTuple):
    """of: drafted tokens of each request, int64 [B].  rate: tokens that such a step brings, over what it takes."""

    of: np.ndarray
    rate: float


def best_lengths(reached: np.ndarray, cost: StepCost, spent: float = 0.0, worth: float = 1.0) -> Lengths:
    """The lengths of a batch's drafts that bring the most tokens for the time.

    reached: float64 [B, m], the chances that each token of a draft is accepted with all before it: they fall along a
    row.  spent: what the step has cost already.  worth: how many times as much a step with drafts must bring as one
    without, or there are none.  With lengths k_b a step brings B + sum_b sum_{i <= k_b} reached[b, i]
    tokens, and what it takes depends on sum_b k_b alone: the best set of any size is that of the largest chances, which
    are prefixes of the rows.
    """
    rows, width = reached.shape
    plain = rows / (cost.step(rows, 0) + spent)
    if not width:
        return Lengths(np.zeros(rows, dtype=np.int64), plain)
    order = (
        None if rows == 1 else (-reached).argsort(axis=None, kind="stable")
    )  # of equal ones of a row the first first
    chances = reached[0] if order is None else reached.ravel()[order]
    rates = (rows + chances.cumsum()) / (cost.verify(rows, rows * width) + spent)  # by the number of drafted tokens
    best = int(rates.argmax())
    if rates[best] < worth * plain or rates[best] <= plain:
        return Lengths(np.zeros(rows, dtype=np.int64), plain)
    drafts = best + 1
    lengths = np.array([drafts]) if order is None else np.bincount(order[:drafts] // width, minlength=rows)
    return Lengths(lengths, float(rates[best]))


def best_rates(reached: np.ndarray, cost: StepCost, spent: np.ndarray) -> np.ndarray:
    """The rates of `best_lengths` of several drafts that the same batch might get, float64 [n].

    reached: float64 [n, B, m].  spent: what the step has cost already with each, float64 [n].
    """
    count, rows, width = reached.shape
    plain = rows / (cost.step(rows, 0) + spent)
    if not width:
        return plain
    chances = reached.reshape(count, -1)
    if rows > 1:
        chances = -np.sort(-chances, axis=1)
    rates = (rows + chances.cumsum(1)) / (cost.verify(rows, rows * width) + spent[:, None])
    return np.maximum(rates.max(1), plain)


def best_common_length(foreseen: np.ndarray, cost: StepCost, spent: np.ndarray, worth: float = 1.0) -> int:
    """As `best_lengths`, where all drafts of a batch have one length: that length, 0 where no draft pays.

    spent: by length, 0 to m, what drafting has cost then, float64 [m + 1].
    """
    rows, width = foreseen.shape
    times = cost.verify(rows, rows * width)[rows - 1 :: rows] + spent[1:]
    rates = (rows + foreseen.sum(0).cumsum()) / times
    best = int(rates.argmax())
    return best + 1 if rates[best] >= worth * rows / (cost.step(rows, 0) + spent[0]) else 0


def least_chance(foreseen: np.ndarray, cost: StepCost, spent: float = 0.0, worth: float = 1.0) -> np.ndarray:
    """What chances to be reached make tokens worth their verification, where `best_lengths` of what is foreseen are.

    By place in a draft, float64 [m]; above 1 where nothing is worth it.  Drafts that are drawn may be cut where they
    fall below it, for it is known before they are: whether a token is judged must not depend on which it is, nor on
    what was drawn after it.  Of one request the token's own place says what it takes, of many how many there are of
    all.
    """
    rows, width = foreseen.shape
    best = best_lengths(foreseen, cost, spent, worth)
    drafts = int(best.of.sum())
    if not drafts:
        return np.full(width, 2.0)
    if rows > 1:
        return np.full(width, best.rate * (cost.step(rows, drafts + 1) - cost.step(rows, drafts)))
    return best.rate * _of_each_token(cost, width)
