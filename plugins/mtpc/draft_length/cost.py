"""What steps of an engine cost, by requests and by tokens: a table that is timed once while the engine starts."""

from __future__ import annotations

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
MOST_POINTS = 64  # of a curve
Curve = Annotated[tuple[Point, ...], Field(min_length=1, max_length=MOST_POINTS, strict=False)]


class StepCost(BaseModel):
    """Costs of decoding steps, relative to a step of one request without a draft.

    A curve is a list of points.  It is straight between them, level before the first one, and continues after the last
    as before it, or level where it falls there.

    Attributes:
        plain: A step without drafts, by requests.
        verifying: A step with drafts for one request, by tokens that the target reads (pending token and draft tokens),
            without the drafter's time.  In a larger batch, drafts add the same amount per token.
        drafting: The drafter's own time, by requests.
        sampled: The same three curves for batches in which a request has a temperature above 0; without it they cost
            the same.
        fixed: Read in older files and ignored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    # Where nothing is stated: of a chat model of 135 M parameters on two cores of a CPU, in steps of a server that can
    # draft.  Up to five or six tokens take as long as one, but for two, whose products of matrices suit no kernel.
    plain: Curve = ((1, 1.0), (4, 1.0), (16, 1.73))
    verifying: Curve = (
        (1, 1.0), (2, 1.13), (3, 1.0), (5, 1.01), (6, 1.04), (7, 1.16), (11, 1.33), (20, 1.87), (64, 4.1)
    )  # fmt: skip
    drafting: Curve = ((1, 0.25), (16, 1.0))
    sampled: StepCost | None = None
    fixed: bool = False

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("plain", "verifying", "drafting"):
            if any(first >= second for (first, _), (second, _) in pairwise(getattr(self, name))):
                raise ValueError(f"{name} must list its points by rising number")
        if any(not seconds for _, seconds in (*self.plain, *self.verifying)):
            raise ValueError("plain and verifying must be above 0")
        if self.sampled is not None and self.sampled.sampled is not None:
            raise ValueError("sampled must not hold sampled itself")
        return self

    @property
    def summary(self) -> str:
        """What a reader of the log is told: how much longer steps of more tokens take, and drafting."""
        steps = ", ".join(f"{tokens}: {times:.2f}" for tokens, times in self.verifying)
        drafts = ", ".join(f"{requests}: {times:.2f}" for requests, times in self.drafting)
        return f"decoding steps cost, by tokens, {steps}; drafting costs, by requests, {drafts}"

    def of(self, greedy: bool) -> StepCost:
        """Of a batch all of whose requests have a temperature of 0, or of another."""
        return self if greedy or self.sampled is None else self.sampled

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


# Where nothing is measured or given: the costs above, and those of steps that draw their tokens.
MEASURED = StepCost(
    sampled=StepCost(
        verifying=((1, 1.0), (2, 1.12), (3, 1.0), (6, 1.0), (7, 1.09), (11, 1.21), (20, 1.8), (64, 4.1)),
        drafting=((1, 0.27), (16, 1.1)),
    ),
)
# Where every draft is to be as long as it can be.
FREE = StepCost(plain=((1, 1.0),), verifying=((1, 1.0),), drafting=((1, 0.0),))


@lru_cache(maxsize=64)
def _along(curve: Curve, first: int, count: int) -> np.ndarray:
    """A curve at so many successive numbers."""
    at, (places, values) = np.arange(first, first + count), np.array(curve).T
    beyond = 0.0
    if len(curve) > 1:
        rise = max(0.0, values[-1] - values[-2])  # one that falls would come to nothing, or to less
        beyond = rise / (places[-1] - places[-2]) * (at - places[-1]).clip(0)
    return np.asarray(np.interp(at, places, values) + beyond)


@lru_cache(maxsize=64)
def _verify(cost: StepCost, rows: int, most: int) -> np.ndarray:
    """See `StepCost.verify`."""
    plain, any_drafts = cost.step(rows, 0), cost.read(1) - cost.step(1, 0)
    read = _along(cost.verifying, rows, most + 1)
    return np.maximum(plain + any_drafts + read[1:] - read[0], plain)


TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)  # of the steps that are timed
NEEDED = 16  # tokens: steps of as many are timed however long they take
REQUESTS = (1, 4, 16)  # for which the drafter is timed
ROUNDS, BUDGET = 4, 6.0  # how often each is timed at most, and seconds after which no more is

Call = Callable[[int], object]


class Sampling(NamedTuple):
    """What a step at a temperature above 0 does after the target's forward pass, each called with a number.

    Attributes:
        sample: Draws the next tokens of so many requests without drafts.
        verify: Verifies the draft of one request, so many tokens with the one after it, by rejection sampling.
        draft: Draws the whole drafts of so many requests; None: the drafter has none of its own.
    """

    sample: Call
    verify: Call
    draft: Call | None


def measured(
    step: Call,
    draft: Call | None,
    most_tokens: int,
    most_requests: int,
    sampling: Sampling | None = None,
    agree: Callable[[float], float] = lambda seconds: seconds,
    clock: Callable[[], float] = time.perf_counter,
) -> StepCost:
    """Time an engine's steps, each in several rounds, of which the fastest counts: a machine that is busy is slow.

    Args:
        step: Runs the target for so many tokens, of a request each, and computes their logits.
        draft: Runs the drafter's whole greedy draft for so many requests; None: it has none of its own.
        most_tokens: Largest number of tokens of a step.
        most_requests: Largest number of requests of a batch.
        sampling: What sampled steps do beyond; None: they cost the same.
        agree: Makes all ranks take the first one's seconds, so that all run ``step`` equally often.
        clock: Returns seconds.

    Returns:
        The table, in steps of one token.  Beyond its last point it continues as before it.
    """
    tokens = [size for size in TOKENS if size <= most_tokens]
    requests = [size for size in REQUESTS if size <= most_requests]
    calls = [(each, size) for each in (draft, sampling and sampling.draft) if each is not None for size in requests]
    calls += [(step, size) for size in tokens]
    if sampling is not None:
        calls += [(sampling.sample, size) for size in tokens if size <= most_requests]
        calls += [(sampling.verify, size) for size in tokens if size > 1]
    best, spent = dict[tuple[Call, int], float](), 0.0
    for number in range(1 + ROUNDS):  # the first round prepares what is needed, and counts where there is no other
        for call, size in calls:
            if spent > BUDGET and (number or size > NEEDED):
                continue
            begun = clock()
            call(size)
            seconds = agree(clock() - begun)
            spent += seconds
            best[call, size] = seconds if number < 2 else min(best[call, size], seconds)
    unit = best[step, 1]

    def curve(*parts: Call | None, level: Curve = ()) -> Curve:
        """Times of parts that follow each other, at the sizes at which all were timed."""
        sizes = [size for size in TOKENS if all((part, size) in best for part in parts)]
        return level + tuple((size, sum(best[part, size] for part in parts) / unit) for size in sizes)  # type: ignore[index]

    nothing: Curve = ((1, 0.0),)
    greedy = StepCost(plain=curve(step), verifying=curve(step), drafting=curve(draft) if draft else nothing)
    if sampling is None:
        return greedy
    plain = curve(step, sampling.sample)
    drafting = curve(sampling.draft) if sampling.draft else nothing
    sampled = StepCost(plain=plain, verifying=curve(step, sampling.verify, level=plain[:1]), drafting=drafting)
    return greedy.model_copy(update={"sampled": sampled})
