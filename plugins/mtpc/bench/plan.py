"""What the results of a benchmark say of the cost of steps, and what to serve with because of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtpc.errors import MTPCError
from mtpc.lengths import StepCost


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


def read_results(file: Path) -> list[Timed]:
    """The points of a results.json of `mtpc bench`.

    Errors: `MTPCError` for a file that is none, or one whose drafting was not timed.
    """
    try:
        points = json.loads(file.read_text())["points"]
        return [_timed(point) for point in points]
    except OSError as error:
        raise MTPCError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError):
        raise MTPCError(
            f"{file} holds no results of `mtpc bench` with timed drafting: run it without --no-draft-times."
        ) from None


def _timed(point: Mapping[str, Any]) -> Timed:
    plain, drafted = point["rounds_without"], point["rounds_with"]
    steps = sum(round_["drafts"] for round_ in drafted)
    return Timed(
        point["batch_size"],
        point["temperature"],
        sum(round_["seconds"] * round_["requests_in_flight"] for round_ in plain)
        / sum(round_["tokens"] for round_ in plain),
        sum(round_["seconds"] * round_["requests_in_flight"] for round_ in drafted) / steps,
        sum(round_["seconds_of_a_drafting_call"] * round_["drafts"] for round_ in drafted) / steps,
        1 + round(sum(round_["draft_tokens"] for round_ in drafted) / steps),
        tuple(map(float, point["marginal_acceptance_rates"])),
    )


class Fit(NamedTuple):
    """Seconds of a step that reads one token, and all costs in such steps."""

    seconds: float
    cost: StepCost


def fit(timed: Sequence[Timed]) -> Fit:
    """The costs that come nearest to what was measured, relative errors weighing the same.

    Errors: `MTPCError` with one batch size, which tells nothing of what a request more costs.
    """
    sizes = {point.batch for point in timed}
    if len(sizes) < 2:
        raise MTPCError("give `mtpc bench` two batch sizes or more: one alone does not say what a request costs.")
    reads = [(point.batch, point.without) for point in timed]
    reads += [(point.batch * point.tokens, point.with_drafter - point.drafting) for point in timed]
    seconds, token = _line([read - 1 for read, _ in reads], [time for _, time in reads])
    draft, row = _line([point.batch for point in timed], [point.drafting for point in timed])
    cost = StepCost(
        token=round(max(token / seconds, 1e-3), 4), draft=round(draft / seconds, 4), row=round(row / seconds, 4)
    )
    return Fit(seconds, cost)


def _line(places: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Offset and slope, neither below 0, of the line with the least relative squares."""
    x, y = np.asarray(places, dtype=float), np.asarray(values, dtype=float)
    (offset, slope), *_ = np.linalg.lstsq(np.stack([1 / y, x / y], 1), np.ones_like(y))
    if slope < 0:
        return float(np.mean(y)), 0.0
    if offset < 0:
        return 0.0, float(np.mean(y / x.clip(1)))
    return float(offset), float(slope)


def predicted(cost: StepCost, batch: int, rates: Sequence[float], drafts: int) -> float:
    """Speed-up over no drafter with so many drafts for each of a batch's requests."""
    plain = cost.reading(batch)
    step = cost.reading(batch * (1 + drafts)) + (cost.drafting(batch) if drafts else 0.0)
    return (1 + sum(rates[:drafts])) * plain / step


def best_drafts(cost: StepCost, batch: int, rates: Sequence[float]) -> int:
    """The number of drafts with the largest predicted speed-up, 0 where drafting does not pay."""
    return max(range(len(rates) + 1), key=lambda drafts: predicted(cost, batch, rates, drafts))


def schedule(cost: StepCost, rates: Sequence[float], largest: int) -> list[list[int]]:
    """vLLM's ``num_speculative_tokens_per_batch_size``: first and last batch size, and the number of drafts."""
    ranges: list[list[int]] = []
    for batch in range(1, largest + 1):
        drafts = best_drafts(cost, batch, rates)
        if ranges and ranges[-1][2] == drafts:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch, drafts])
    return ranges
