"""Costs of decoding steps by requests and by tokens: a table that is measured once while the engine starts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

Point = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1 << 20)], Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]],
    Field(strict=False),
]
MOST_POINTS = 64
Curve = Annotated[tuple[Point, ...], Field(min_length=1, max_length=MOST_POINTS, strict=False)]


class StepCost(BaseModel):
    """Costs of decoding steps, relative to a step of one request without a draft.

    A curve is a list of points with linear interpolation.  It is constant before the first point.  After the last one
    it continues with its last slope, or constant if that is negative.

    Attributes:
        plain: A step without drafts, by requests.
        verifying: A step with drafts for one request, by tokens that the target reads (pending token and draft tokens),
            without the drafter's time.  In a larger batch, drafts add the same amount per token.
        drafting: The drafter's own time, by requests.
        sampled: The same three curves for batches in which a request has a temperature above 0; without it they cost
            the same as greedy ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    # Defaults: measured for a chat model of 135 M parameters on two CPU cores, in a server with a drafter.
    # Up to 5 or 6 tokens take as long as 1, except for 2, for which the CPU has no fast kernel.
    plain: Curve = ((1, 1.0), (4, 1.0), (16, 1.73))
    verifying: Curve = (
        (1, 1.0), (2, 1.13), (3, 1.0), (5, 1.01), (6, 1.04), (7, 1.16), (11, 1.33), (20, 1.87), (64, 4.1)
    )  # fmt: skip
    drafting: Curve = ((1, 0.25), (16, 1.0))
    sampled: StepCost | None = None

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("plain", "verifying", "drafting"):
            if any(first >= second for (first, _), (second, _) in pairwise(getattr(self, name))):
                raise ValueError(f"{name} must list its points by rising number")
        if any(not seconds for _, seconds in (*self.plain, *self.verifying)):
            raise ValueError("plain and verifying must be above 0")
        if self.sampled is not None and self.sampled.sampled is not None:
            raise ValueError("sampled must not contain another 'sampled' table")
        return self

    @property
    def summary(self) -> str:
        """One log line: the cost of steps by tokens, and of drafting by requests."""
        steps = ", ".join(f"{tokens}: {times:.2f}" for tokens, times in self.verifying)
        drafts = ", ".join(f"{requests}: {times:.2f}" for requests, times in self.drafting)
        return f"relative cost of a decoding step by tokens: {steps}; of drafting by requests: {drafts}"

    def of(self, greedy: bool) -> StepCost:
        """Return the costs of a batch.

        Args:
            greedy: Whether all requests have a temperature of 0.
        """
        return self if greedy or self.sampled is None else self.sampled

    def step(self, rows: int, drafts: int) -> float:
        """Return the cost of a step, without the drafter's time.

        Args:
            rows: Requests of the batch.
            drafts: Draft tokens of all requests.
        """
        return float(self.verify(rows, drafts)[-1] if drafts else _interpolated(self.plain, rows, 1)[0])

    def draft(self, rows: int) -> float:
        """Return the cost of the drafter's own draft for this many requests."""
        return float(_interpolated(self.drafting, rows, 1)[0])

    def read(self, tokens: int) -> float:
        """Return ``verifying`` at a number of tokens."""
        return float(_interpolated(self.verifying, tokens, 1)[0])

    def verify(self, rows: int, most: int) -> np.ndarray:
        """Return the costs of steps with 1 to ``most`` draft tokens, float64 [most]; never below a step without drafts.

        Args:
            rows: Requests of the batch.
            most: Draft tokens of all requests at most.
        """
        return _verify(self, rows, most)


# Used if costs are neither measured nor set: the defaults above, and those of steps at a temperature above 0.
DEFAULT_COSTS = StepCost(
    sampled=StepCost(
        verifying=((1, 1.0), (2, 1.12), (3, 1.0), (6, 1.0), (7, 1.09), (11, 1.21), (20, 1.8), (64, 4.1)),
        drafting=((1, 0.27), (16, 1.1)),
    ),
)
# Used if draft length does not adapt: every draft is as long as possible.
FREE_DRAFTS = StepCost(plain=((1, 1.0),), verifying=((1, 1.0),), drafting=((1, 0.0),))


@lru_cache(maxsize=64)
def _interpolated(curve: Curve, first: int, count: int) -> np.ndarray:
    """Return a curve at ``count`` successive numbers."""
    at, (places, values) = np.arange(first, first + count), np.array(curve).T
    beyond = 0.0
    if len(curve) > 1:
        rise = max(0.0, values[-1] - values[-2])  # a falling curve would reach 0
        beyond = rise / (places[-1] - places[-2]) * (at - places[-1]).clip(0)
    return np.asarray(np.interp(at, places, values) + beyond)


@lru_cache(maxsize=64)
def _verify(cost: StepCost, rows: int, most: int) -> np.ndarray:
    """See `StepCost.verify`."""
    plain, any_drafts = cost.step(rows, 0), cost.read(1) - cost.step(1, 0)
    read = _interpolated(cost.verifying, rows, most + 1)
    return np.maximum(plain + any_drafts + read[1:] - read[0], plain)


MEASURED_TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)  # of the steps that are timed
ALWAYS_MEASURED = 16  # tokens: steps of as many are timed however long they take
MEASURED_REQUESTS = (1, 4, 16)  # for which the drafter is timed
ROUNDS, MAX_SECONDS = 4, 6.0  # how often each is timed at most, and seconds after which it is not timed again
INTERRUPTED = 1.25  # a step this many times slower than one with more tokens was held up in every round

Call = Callable[[int], object]


class Sampling(NamedTuple):
    """Work of a sampled step after the target's forward pass; each function is called with a number.

    Attributes:
        sample: Draws the next token of this many requests without draft tokens.
        verify: Verifies the draft of one request by rejection sampling: this many tokens, with the one after the draft.
        draft: Samples the whole drafts of this many requests; None: the drafter has none of its own.
    """

    sample: Call
    verify: Call
    draft: Call | None


def measure_costs(
    step: Call,
    draft: Call | None,
    most_tokens: int,
    most_requests: int,
    sampling: Sampling | None = None,
    agree: Callable[[float], float] = lambda seconds: seconds,
    clock: Callable[[], float] = time.perf_counter,
) -> StepCost:
    """Measure an engine's decoding steps, each in several rounds of which the fastest counts.

    Other processes can only slow a step down, so the minimum is the best estimate.  A step that is much slower than a
    larger one, as on a busy machine, gets the time of the latter.

    Args:
        step: Runs the target for this many tokens, one for each of as many requests, with their logits.
        draft: Runs the drafter's whole greedy draft for this many requests; None: it has none of its own.
        most_tokens: Largest number of tokens in one decoding step.
        most_requests: Largest number of requests of a batch.
        sampling: Further work of sampled steps; None: they cost the same.
        agree: Makes all ranks take the first one's seconds, so that all run ``step`` equally often.
        clock: Returns seconds.

    Returns:
        The table, in steps of one token.  Beyond its last point it continues as before it.
    """
    tokens = [size for size in MEASURED_TOKENS if size <= most_tokens]
    requests = [size for size in MEASURED_REQUESTS if size <= most_requests]
    drafts = dict.fromkeys([draft, sampling and sampling.draft])  # which may be one function
    calls = [(each, size) for each in drafts if each is not None for size in requests]
    calls += [(step, size) for size in tokens]
    if sampling is not None:
        calls += [(sampling.sample, size) for size in tokens if size <= most_requests]
        calls += [(sampling.verify, size) for size in tokens if size > 1]

    def timed(call: Call, size: int) -> float:
        begun = clock()
        call(size)
        return agree(clock() - begun)

    spent, prepared = 0.0, list[tuple[Call, int]]()
    for call, size in calls:  # the first calls prepare what is needed, and do not count
        if spent <= MAX_SECONDS or size <= ALWAYS_MEASURED:
            spent += timed(call, size)
            prepared.append((call, size))
    best, spent = dict[tuple[Call, int], float](), 0.0
    for number in range(ROUNDS):
        for call, size in prepared:
            if spent <= MAX_SECONDS or (number == 0 and size <= ALWAYS_MEASURED):
                seconds = timed(call, size)
                spent += seconds
                best[call, size] = min(best.get((call, size), seconds), seconds)
    for call, size in sorted(best, key=lambda each: -each[1]):
        larger = min((best[other, more] for other, more in best if other is call and more > size), default=math.inf)
        if best[call, size] > INTERRUPTED * larger:
            best[call, size] = larger
    unit = best[step, 1]

    def curve(*parts: Call, level: Curve = ()) -> Curve:
        """Times of parts that follow each other, at the sizes at which all were timed."""
        sizes = [size for size in MEASURED_TOKENS if all((part, size) in best for part in parts)]
        return level + tuple((size, sum((best[part, size] for part in parts), 0.0) / unit) for size in sizes)

    nothing: Curve = ((1, 0.0),)
    greedy = StepCost(plain=curve(step), verifying=curve(step), drafting=curve(draft) if draft else nothing)
    if sampling is None:
        return greedy
    plain = curve(step, sampling.sample)
    drafting = curve(sampling.draft) if sampling.draft else nothing
    sampled = StepCost(plain=plain, verifying=curve(step, sampling.verify, level=plain[:1]), drafting=drafting)
    return greedy.model_copy(update={"sampled": sampled})
