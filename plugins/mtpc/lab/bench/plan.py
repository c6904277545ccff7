"""What the results of a benchmark say of the cost of steps, and what to serve with because of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mtpc.draft_length.cost import MOST_POINTS, StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.files.json_file import read_json

OF_RESULTS = "what steps took in these results"


class Timed(NamedTuple):
    """A batch size at one temperature: seconds of a step without the drafter, with it, and of its drafting.

    tokens: that a step with the drafter reads for each request.  rates: marginal acceptance, by position.
    """

    batch: int
    temperature: float
    without: float
    with_drafter: float
    drafting: float
    tokens: int
    rates: tuple[float, ...]


LEAST, MOST = 1e-12, 1e12  # of a number: what follows from several of these is finite
Above = Annotated[float, Field(ge=LEAST, le=MOST)]
NotBelow = Annotated[float, Field(ge=0, le=MOST)]


class PlainRound(BaseModel):
    """What is read of a round without a drafter."""

    model_config = ConfigDict(strict=True)

    seconds: Above
    requests_in_flight: Above
    tokens: Above


class DraftedRound(PlainRound):
    """What is read of a round with a drafter, whose drafting was timed."""

    drafts: Above
    draft_tokens: NotBelow
    seconds_of_a_drafting_call: NotBelow


class StoredPoint(BaseModel):
    """What is read of a point, among what else `mtpc bench` writes of it."""

    model_config = ConfigDict(strict=True)

    batch_size: Annotated[int, Field(ge=1, le=1 << 20)]
    temperature: NotBelow
    rounds_without: list[PlainRound] = Field(min_length=1)
    rounds_with: list[DraftedRound] = Field(min_length=1)
    marginal_acceptance_rates: list[Annotated[float, Field(ge=0, le=1)]]


class Results(BaseModel):
    """What is read of a results.json."""

    points: list[StoredPoint] = Field(min_length=1)


def read_results(file: Path) -> list[Timed]:
    """The points of a results.json of `mtpc bench`.

    Errors: `MTPCError` for a file that is none, or one whose drafting was not timed.
    """
    try:
        return [_timed(point) for point in declared(Results, read_json(file), str(file)).points]
    except MTPCError as error:
        raise MTPCError(
            f"{file} holds no results of `mtpc bench` with timed drafting, which it writes without --no-draft-times: "
            f"{error}"
        ) from None


def _timed(point: StoredPoint) -> Timed:
    plain, drafted = point.rounds_without, point.rounds_with
    steps = sum(each.drafts for each in drafted)
    return Timed(
        point.batch_size,
        point.temperature,
        sum(each.seconds * each.requests_in_flight for each in plain) / sum(each.tokens for each in plain),
        sum(each.seconds * each.requests_in_flight for each in drafted) / steps,
        sum(each.seconds_of_a_drafting_call * each.drafts for each in drafted) / steps,
        1 + round(sum(each.draft_tokens for each in drafted) / steps),
        tuple(point.marginal_acceptance_rates),
    )


class Measured(NamedTuple):
    """Seconds of a step that says one token to one request, and all costs in such steps."""

    seconds: float
    cost: StepCost


def measured(timed: Sequence[Timed]) -> Measured:
    """The costs of steps at the sizes that were measured: means of all temperatures above 0, no larger size cheaper.

    Where it was measured at a temperature of 0 as well, these are the costs, and the others those of sampled batches.

    Errors: `MTPCError` without batches of one request, of one batch size or too many, or for what no steps take.
    """
    sizes = {point.batch for point in timed}
    if len(sizes) > MOST_POINTS:
        raise MTPCError(f"these results are of {len(sizes)} batch sizes, but of {MOST_POINTS} at most costs are told.")
    if len(sizes) < 2 or min(sizes) > 1:
        raise MTPCError("give `mtpc bench` batches of one request and of more: what a step takes depends on them.")
    greedy, sampled = ([point for point in timed if (point.temperature == 0) == zero] for zero in (True, False))
    seconds = float(np.mean([point.without for point in greedy or sampled if point.batch == 1]))
    if not (greedy and sampled):
        return Measured(seconds, _cost(timed, seconds))
    return Measured(seconds, _cost(greedy, seconds).model_copy(update={"sampled": _cost(sampled, seconds)}))


def _cost(timed: Sequence[Timed], seconds: float) -> StepCost:
    """Of steps at some temperatures, in steps of so many seconds."""
    curves = {
        "plain": _curve([(point.batch, point.without / seconds) for point in timed]),
        "drafting": _curve([(point.batch, point.drafting / seconds) for point in timed]),
    }
    added = [(point.batch, (point.with_drafter - point.drafting - point.without) / seconds) for point in timed]
    tokens = {point.batch: point.batch * point.tokens for point in timed}
    (_, alone), *others = _curve(added)
    curves["verifying"] = ((tokens[1], max(1.0, curves["plain"][0][1] + alone)),)
    for batch, more in others:  # as `StepCost.verify` adds it to what such a batch takes without drafts
        before = declared(StepCost, curves, OF_RESULTS).read(batch)
        curves["verifying"] = _curve([*curves["verifying"], (tokens[batch], before + more - alone)])
    return declared(StepCost, curves, OF_RESULTS)


def _curve(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Means by number, in rising order, that never fall."""
    numbers = sorted({number for number, _ in points})
    means = [float(np.mean([value for place, value in points if place == number])) for number in numbers]
    return tuple((number, round(value, 4)) for number, value in zip(numbers, accumulate(means, max), strict=True))


def predicted(cost: StepCost, batch: int, rates: Sequence[float], drafts: int) -> float:
    """Speed-up over no drafter with so many drafts for each of a batch's requests."""
    step = cost.step(batch, batch * drafts) + (cost.draft(batch) if drafts else 0.0)
    return (1 + sum(rates[:drafts])) * cost.step(batch, 0) / step


def best_drafts(cost: StepCost, batch: int, rates: Sequence[float]) -> int:
    """The number of drafts with the largest predicted speed-up, 0 where drafting does not pay."""
    return max(range(len(rates) + 1), key=lambda drafts: predicted(cost, batch, rates, drafts))


def schedule(cost: StepCost, rates: Sequence[float], largest: int) -> list[list[int]]:
    """VLLM's ``num_speculative_tokens_per_batch_size``: first and last batch size, and the number of drafts."""
    ranges: list[list[int]] = []
    for batch in range(1, largest + 1):
        drafts = best_drafts(cost, batch, rates)
        if ranges and ranges[-1][2] == drafts:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch, drafts])
    return ranges
