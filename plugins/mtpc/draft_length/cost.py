"""What steps of an engine take, by requests and by tokens: a table, as it is measured, written down and given."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

Point = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1 << 20)], Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]],
    Field(strict=False),
]
MOST_POINTS = 64  # of a curve
Curve = Annotated[tuple[Point, ...], Field(min_length=1, max_length=MOST_POINTS, strict=False)]


class StepCost(BaseModel):
    """What steps of the engine take, in steps that say one token to one request without a draft.

    Points of curves that are straight between them, level before the first, and go on after the last as before it, or
    level where they fall there.
    plain: a step without drafts, by requests.  verifying: one with drafts for one request, by tokens that it reads, the
    pending one and drafts; drafting apart.  What requests cost beside their tokens is in ``plain``: in a step of
    more of them, drafts add what as many tokens add here from the number of requests on, and what any drafts add.
    drafting: the drafter's own draft, by requests.  sampled: steps in which some request has a temperature above 0, in
    the same unit; None: they cost the same.  fixed: whether this stands as it is, or is corrected by what steps take in
    the server, see `mtpc.draft_length.measured`.
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
                raise ValueError(f"the numbers of {name} must rise")
        if any(not seconds for _, seconds in (*self.plain, *self.verifying)):
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


# Where a user has not measured: the costs above, and those of steps that draw their tokens.
MEASURED = StepCost(
    sampled=StepCost(
        verifying=((1, 1.0), (2, 1.12), (3, 1.0), (6, 1.0), (7, 1.09), (11, 1.21), (20, 1.8), (64, 4.1)),
        drafting=((1, 0.27), (16, 1.1)),
    ),
)


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
