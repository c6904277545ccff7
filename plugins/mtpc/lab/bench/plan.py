"""Costs of decoding steps from benchmark results, and the number of draft tokens that is best by them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mtpc.draft_length.cost import MOST_POINTS, StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.json_file import is_folder, read_json

OF_RESULTS = "the time of steps in these results"
RESULTS = "results.json"  # what `mtpc bench` writes into its folder
NEARLY_ALL = 0.98  # share of steps and of draft tokens, because a few are counted late


class StepTimes(NamedTuple):
    """Mean times of decoding steps at one batch size and temperature, in seconds.

    Attributes:
        batch: Number of requests.
        temperature: Sampling temperature.
        without: Time of a step without the drafter.
        with_drafter: Time of a step with the drafter, drafting included.
        drafting: Time of drafting in such a step.
        tokens: Tokens per request that a step with the drafter verifies, K + 1.
        rates: [K] marginal acceptance rates.
        speedup: Ratio of throughput with the drafter to throughput without, as `mtpc bench` prints it.
    """

    batch: int
    temperature: float
    without: float
    with_drafter: float
    drafting: float
    tokens: int
    rates: tuple[float, ...]
    speedup: float


LEAST, MOST = 1e-12, 1e12  # bounds of all numbers, so that results of several are finite
Positive = Annotated[float, Field(ge=LEAST, le=MOST)]
NonNegative = Annotated[float, Field(ge=0, le=MOST)]


class PlainRound(BaseModel):
    """The fields that are read from a round without a drafter."""

    model_config = ConfigDict(strict=True)

    seconds: Positive
    requests_in_flight: Positive
    tokens: Positive


class DraftedRound(PlainRound):
    """The fields that are read from a round with a drafter, whose drafting was timed."""

    requests: Positive
    drafts: NonNegative
    draft_tokens: NonNegative
    accepted_tokens: NonNegative
    seconds_of_a_drafting_call: NonNegative


class StoredPoint(BaseModel):
    """The fields that are read from a point of a results.json."""

    model_config = ConfigDict(strict=True)

    batch_size: Annotated[int, Field(ge=1, le=1 << 20)]
    temperature: NonNegative
    rounds_without: list[PlainRound] = Field(min_length=1)
    rounds_with: list[DraftedRound] = Field(min_length=1)
    marginal_acceptance_rates: list[Annotated[float, Field(ge=0, le=1)]]


class BenchResults(BaseModel):
    """The part of a results.json that is read; older versions did not write whether the draft length was fixed."""

    points: list[StoredPoint] = Field(min_length=1)
    settings: Any = None


def results_file(path: Path) -> Path:
    """Return the results.json of a benchmark.

    Args:
        path: The file, or the folder that `mtpc bench` wrote.
    """
    return path / RESULTS if is_folder(path) else path


def read_results(file: Path) -> list[StepTimes]:
    """Read the times of steps from a results.json of `mtpc bench`.

    Args:
        file: The results.json.

    Returns:
        One entry for each batch size and temperature.

    Raises:
        MTPCError: The file holds no results, drafting was not timed, or steps differ in their number of draft tokens.
    """
    try:
        found = validated(BenchResults, read_json(file), str(file))
    except MTPCError as error:
        raise MTPCError(
            f"{file} holds no results of `mtpc bench` with timed drafting (run it without --no-draft-times): {error}"
        ) from None
    is_set = isinstance(found.settings, dict) and found.settings.get("fixed_length") is True
    for point in found.points:
        if not _has_fixed_length(point, is_set):
            raise MTPCError(
                f"{file} was measured with draft lengths that adapt (temperature {point.temperature:g}, batch size "
                f"{point.batch_size}), which do not show what a step with K draft tokens costs: run `mtpc bench` with "
                "--fixed-length."
            )
    return [_timed(point) for point in found.points]


def _has_fixed_length(point: StoredPoint, is_set: bool) -> bool:
    """Return whether every step drafted, with K tokens or, where the option is set, as many as a text part has."""
    drafts = sum(each.drafts for each in point.rounds_with)
    steps = sum(each.tokens - each.requests - each.accepted_tokens for each in point.rounds_with)
    tokens = sum(each.draft_tokens for each in point.rounds_with)
    longest = is_set or tokens >= NEARLY_ALL * len(point.marginal_acceptance_rates) * drafts
    return drafts > 0 and drafts >= NEARLY_ALL * steps and longest


def _timed(point: StoredPoint) -> StepTimes:
    plain, drafted = point.rounds_without, point.rounds_with
    steps = sum(each.drafts for each in drafted)
    return StepTimes(
        point.batch_size,
        point.temperature,
        sum(each.seconds * each.requests_in_flight for each in plain) / sum(each.tokens for each in plain),
        sum(each.seconds * each.requests_in_flight for each in drafted) / steps,
        sum(each.seconds_of_a_drafting_call * each.drafts for each in drafted) / steps,
        1 + round(sum(each.draft_tokens for each in drafted) / steps),
        tuple(point.marginal_acceptance_rates),
        _throughput(drafted) / _throughput(plain),
    )


def _throughput(rounds: Sequence[PlainRound]) -> float:
    """Return the tokens per second of all rounds together."""
    return sum(each.tokens for each in rounds) / sum(each.seconds for each in rounds)


class MeasuredCosts(NamedTuple):
    """Costs of decoding steps.

    Attributes:
        seconds: Time of a step without a draft at batch size 1, the unit of the costs.
        cost: Costs in this unit.
    """

    seconds: float
    cost: StepCost


def measured_costs(timed: Sequence[StepTimes]) -> MeasuredCosts:
    """Compute the costs of steps at the measured batch sizes.

    Costs are means over the temperatures above 0, and no larger batch is cheaper.  Where temperature 0 was measured as
    well, its costs are the main ones and the others become the costs of sampled batches.

    Args:
        timed: Times of steps.

    Returns:
        The costs and their unit.

    Raises:
        MTPCError: Batch size 1 is missing, there is only one batch size or there are too many, or a cost is out of
            bounds.
    """
    sizes = {point.batch for point in timed}
    if len(sizes) > MOST_POINTS:
        raise MTPCError(
            f"the results have {len(sizes)} batch sizes, but at most {MOST_POINTS} are allowed: run `mtpc bench` with "
            "fewer --batch-sizes."
        )
    if len(sizes) < 2 or min(sizes) > 1:
        raise MTPCError(
            f"the results have batch size {', '.join(map(str, sorted(sizes)))}, but 1 and a larger one are required: "
            "run `mtpc bench` with --batch-sizes 1,4,16 --fixed-length."
        )
    greedy, sampled = ([point for point in timed if (point.temperature == 0) == zero] for zero in (True, False))
    seconds = float(np.mean([point.without for point in greedy or sampled if point.batch == 1]))
    if not (greedy and sampled):
        return MeasuredCosts(seconds, _cost(timed, seconds))
    return MeasuredCosts(seconds, _cost(greedy, seconds).model_copy(update={"sampled": _cost(sampled, seconds)}))


def _cost(timed: Sequence[StepTimes], seconds: float) -> StepCost:
    """Return the costs at some temperatures, in units of ``seconds``."""
    curves = {
        "plain": _curve([(point.batch, point.without / seconds) for point in timed]),
        "drafting": _curve([(point.batch, point.drafting / seconds) for point in timed]),
    }
    added = [(point.batch, (point.with_drafter - point.drafting - point.without) / seconds) for point in timed]
    tokens = {point.batch: point.batch * point.tokens for point in timed}
    (_, alone), *others = _curve(added)
    curves["verifying"] = ((tokens[1], max(1.0, curves["plain"][0][1] + alone)),)
    for batch, more in others:  # the inverse of `StepCost.verify`, which adds it to the cost without a draft
        before = validated(StepCost, curves, OF_RESULTS).read(batch)
        curves["verifying"] = _curve([*curves["verifying"], (tokens[batch], before + more - alone)])
    return validated(StepCost, curves, OF_RESULTS)


def _curve(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return the means by number, in ascending order, made non-decreasing."""
    numbers = sorted({number for number, _ in points})
    means = [float(np.mean([value for other, value in points if other == number])) for number in numbers]
    return tuple((number, round(value, 4)) for number, value in zip(numbers, accumulate(means, max), strict=True))


def predicted_speedup(cost: StepCost, batch: int, rates: Sequence[float], drafts: int) -> float:
    """Return the predicted speedup over serving without a drafter.

    Args:
        cost: Costs of steps.
        batch: Number of requests.
        rates: [K] marginal acceptance rates.
        drafts: Draft tokens for each request, at most K.
    """
    step = cost.step(batch, batch * drafts) + (cost.draft(batch) if drafts else 0.0)
    return (1 + sum(rates[:drafts])) * cost.step(batch, 0) / step


def best_drafts(cost: StepCost, batch: int, rates: Sequence[float]) -> int:
    """Return the number of draft tokens with the largest predicted speedup, 0 where drafting gives none.

    Args:
        cost: Costs of steps.
        batch: Number of requests.
        rates: [K] marginal acceptance rates.
    """
    return max(range(len(rates) + 1), key=lambda drafts: predicted_speedup(cost, batch, rates, drafts))


def schedule(cost: StepCost, rates: Sequence[float], largest: int) -> list[list[int]]:
    """Return vLLM's ``num_speculative_tokens_per_batch_size``.

    Args:
        cost: Costs of steps.
        rates: [K] marginal acceptance rates.
        largest: Largest batch size.

    Returns:
        Triples (first batch size, last batch size, number of draft tokens) that cover 1 to ``largest``.
    """
    ranges: list[list[int]] = []
    for batch in range(1, largest + 1):
        drafts = best_drafts(cost, batch, rates)
        if ranges and ranges[-1][2] == drafts:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch, drafts])
    return ranges


def extrapolation_note(timed: Sequence[StepTimes], largest: int) -> str | None:
    """Return a sentence that names the batch sizes above all measured ones; None if there are none.

    Args:
        timed: Times of steps, at two or more batch sizes.
        largest: Largest batch size of the schedule.
    """
    sizes = sorted({point.batch for point in timed})
    before, last = sizes[-2:]  # the slope between these two is continued, see `StepCost`
    if largest <= last:
        return None
    beyond = f"Batch sizes {last + 1} to {largest} are" if largest > last + 1 else f"Batch size {largest} is"
    command = f"mtpc bench --fixed-length --batch-sizes {','.join(map(str, [*sizes, largest]))}"
    return f"{beyond} extrapolated from {before} and {last}: measure with `{command}`."
