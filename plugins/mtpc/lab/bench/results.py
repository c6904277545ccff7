"""The figures of a benchmark: points by batch size and temperature, each without and with a drafter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

from mtpc.lab.bench.measure import Measurement
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters

NO_DRAFTER, DRAFTER = "no drafter", "drafter"  # names of servers, in tables and file names


@dataclass(frozen=True)
class Point:
    """One batch size at one temperature.

    Attributes:
        batch_size: Number of concurrent requests.
        temperature: Sampling temperature.
        without: Measurement of each round without a drafter.
        with_drafter: Measurement of each round with the drafter, taken directly after.
        others: The same for other drafters that were measured in the same rounds, by name.
    """

    batch_size: int
    temperature: float
    without: tuple[Measurement, ...]
    with_drafter: tuple[Measurement, ...]
    others: Mapping[str, Point] = field(default_factory=dict)

    @property
    def rate_without(self) -> float:
        """Tokens per second without the drafter, all rounds together."""
        return rate(self.without)

    @property
    def rate_with(self) -> float:
        """Tokens per second with the drafter, all rounds together."""
        return rate(self.with_drafter)

    @property
    def speedup(self) -> float:
        """Ratio of throughput with the drafter to throughput without."""
        return self.rate_with / self.rate_without

    @property
    def speedups(self) -> list[float]:
        """Speedup of each round, which shows the noise of the machine."""
        pairs = zip(self.without, self.with_drafter, strict=True)
        return [drafted.tokens_per_second / plain.tokens_per_second for plain, drafted in pairs]

    @property
    def drafts(self) -> DraftCounters:
        """Counts of draft tokens over all rounds."""
        return reduce(add, (measurement.drafts for measurement in self.with_drafter))

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens per target forward pass with the drafter, see the function `tokens_per_step`."""
        return tokens_per_step(self.with_drafter)

    @property
    def drafting_share(self) -> float:
        """Share of the wall time that is spent on drafting, mean over the rounds."""
        return _mean(measurement.drafting_share for measurement in self.with_drafter)

    @property
    def part_shares(self) -> dict[str, float]:
        """Share of the wall time of each part of drafting, mean over the rounds, in the order in which they run."""
        parts = dict.fromkeys(part for measurement in self.with_drafter for part in measurement.part_seconds)
        return {part: _mean(one.part_shares.get(part, 0.0) for one in self.with_drafter) for part in parts}

    @property
    def identical(self) -> float | None:
        """Share of completions that are equal with and without the drafter; None above temperature 0."""
        if self.temperature > 0:
            return None
        pairs = [
            pair
            for plain, drafted in zip(self.without, self.with_drafter, strict=True)
            for pair in zip(plain.texts, drafted.texts, strict=True)
        ]
        return sum(plain == drafted for plain, drafted in pairs) / len(pairs)

    def to_json(self) -> dict[str, Any]:
        """Return the figures without the completions; unknown figures are null."""
        return {
            "batch_size": self.batch_size,
            "temperature": self.temperature,
            "tokens_per_second_without": self.rate_without,
            "tokens_per_second_with": self.rate_with,
            "speedup": self.speedup,
            "speedup_of_each_round": self.speedups,
            "acceptance_length": _known(self.drafts.acceptance_length),
            "tokens_per_step": _known(self.tokens_per_step),
            "marginal_acceptance_rates": [_known(rate) for rate in self.drafts.marginal_rates],
            "conditional_acceptance_rates": [_known(rate) for rate in self.drafts.conditional_rates],
            "drafting_share_of_a_step": _known(self.drafting_share),
            "shares_of_its_parts": {part: _known(share) for part, share in self.part_shares.items()},
            "identical_greedy_share": self.identical,
            "rounds_without": [measurement_to_json(measurement) for measurement in self.without],
            "rounds_with": [measurement_to_json(measurement) for measurement in self.with_drafter],
            "others": {name: other.to_json() for name, other in self.others.items()},
        }


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    """Return the figures of a measurement, without its completions.

    Args:
        measurement: The measurement.

    Returns:
        Figures by name; times are in seconds, and unknown figures are null.
    """
    return {
        "requests": measurement.requests,
        "tokens": measurement.tokens,
        "seconds": measurement.seconds,
        "tokens_per_second": measurement.tokens_per_second,
        "requests_in_flight": measurement.in_flight,
        "time_to_first_token": measurement.first_token,
        "time_per_output_token": measurement.per_token,
        "drafts": measurement.drafts.drafts,
        "draft_tokens": measurement.drafts.draft_tokens,
        "accepted_tokens": measurement.drafts.accepted,
        "accepted_at_position": list(measurement.drafts.accepted_at),
        "drafting_calls": measurement.draft_calls,
        "seconds_of_a_drafting_call": _known(measurement.draft_seconds),
        "seconds_of_its_parts": dict(measurement.part_seconds),
        "seconds_of_a_step": _known(measurement.step_seconds),
    }


def tokens_per_step(measurements: Sequence[Measurement]) -> float:
    """Compute the mean tokens per target forward pass of a request, including steps without a draft.

    The first token of a request is left out, because it comes from the prompt.

    Args:
        measurements: Measurements to combine.

    Returns:
        The mean; NaN where no request has a second token.
    """
    steps = sum(one.steps for one in measurements)
    return sum(one.tokens - one.requests for one in measurements) / steps if steps else float("nan")


def by_drafter(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of every measured drafter by name, the benchmarked drafter first."""
    others = {name: [point.others[name] for point in points] for name in points[0].others}
    return {DRAFTER: list(points), **others}


def drafts_by_temperature(points: Iterable[Point]) -> dict[float, DraftCounters]:
    """Return the counts of all batch sizes together by temperature, padded to the same number of positions."""
    counters: dict[float, DraftCounters] = {}
    for point in points:
        counters[point.temperature] = counters.get(point.temperature, NO_DRAFTS) + point.drafts
    positions = max((len(drafts.accepted_at) for drafts in counters.values()), default=0)
    nothing = DraftCounters(accepted_at=(0.0,) * positions)
    return {temperature: drafts + nothing for temperature, drafts in counters.items()}


def rate(measurements: Sequence[Measurement]) -> float:
    """Compute the throughput of several measurements together.

    Args:
        measurements: Measurements to combine.

    Returns:
        Tokens per second: all tokens over all seconds.
    """
    return sum(m.tokens for m in measurements) / sum(m.seconds for m in measurements)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
