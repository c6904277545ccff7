"""How likely it is that a text which is as it was before goes on as it did: by the length of the match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from mtpc.files.config_model import Strict, declared
from mtpc.files.json_file import is_there, read_json
from mtpc.prompt_lookup.calibration import shifted

FILE = "copying.json"  # of a drafter checkpoint
# Of SmolLM2-135M-Instruct along 48,000 tokens of its answers, greedy and at T = 0.8; for a directory without a `FILE`.
COMMON = (0.22, 0.49, 0.62, 0.66, 0.70, 0.75, 0.78, 0.80, 0.83, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88, 0.96)
TYPICAL = (0.6, 0.6)  # of drafters whose directory does not say
# What is drawn from a flat distribution is accepted more often than its most probable token would be, from a peaked one
# less often: of both drafters that ship, so far does the logit of the largest probability count.
SLOPE = (1.0, 0.5)
Chance = Annotated[float, Field(gt=0, lt=1)]
Slope = Annotated[float, Field(gt=0, le=2)]


class Chances(Strict):
    """A `FILE`, as `mtpc train copying` writes it: beside the chances it may say how they were found."""

    chances: list[Chance] = Field(min_length=1, max_length=256)
    own: list[Annotated[float, Field(ge=-3, le=3)]] = Field(default=[0.0], min_length=1, max_length=256)
    copied: list[Annotated[float, Field(ge=-3, le=3)]] = Field(default=[0.0], min_length=1, max_length=256)
    own_sampled: list[Annotated[float, Field(ge=-3, le=3)]] = Field(default=[0.0], min_length=1, max_length=256)
    slope: Annotated[tuple[Slope, Slope], Field(strict=False)] = SLOPE
    typical: Annotated[tuple[Chance, Chance], Field(strict=False)] = TYPICAL
    counts: list[list[int]] | None = None
    arguments: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    own_from: str | None = None
    copied_from: str | None = None
    own_sampled_from: str | None = None
    typical_from: str | None = None


@dataclass(frozen=True)
class CopyTable:
    """chances: of the next token, by the number of tokens that match, from 1 on; longer matches are as the last.

    own: what is added to the logits of the drafter's own probabilities, by place in its draft; further places are as
    the last.  A drafter may be too sure or not sure enough, and what was right before is more often right again.
    own_sampled: the same of requests that are not greedy.  slope: by what the logits are multiplied before, of both.
    copied: what is added to the logits of chances of copies.  typical: how often a token of the drafter's own is
    accepted where those before it were, of greedy requests and of others.
    """

    chances: tuple[float, ...] = COMMON
    own: tuple[float, ...] = (0.0,)
    copied: tuple[float, ...] = (0.0,)
    own_sampled: tuple[float, ...] = (0.0,)
    slope: tuple[float, float] = SLOPE
    typical: tuple[float, float] = TYPICAL
    _along: dict[tuple[int, int], list[float]] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """That of a drafter checkpoint.

        Errors: `MTPCError` for a file that holds none.
        """
        file = folder / FILE
        if not is_there(file):
            return cls()
        stated = declared(Chances, read_json(file), str(file))
        return cls(
            tuple(stated.chances),
            tuple(stated.own),
            tuple(stated.copied),
            tuple(stated.own_sampled),
            stated.slope,
            stated.typical,
        )

    @property
    def longest(self) -> int:
        """Tokens of a match that tell anything."""
        return len(self.chances)

    def of_drafter(self, chances: Sequence[float], shift: float = 0.0, greedy: bool = True) -> list[float]:
        """The drafter's largest probabilities along its draft, corrected; shift: added to all logits besides."""
        return [self.at_place(place, chance, shift, greedy) for place, chance in enumerate(chances)]

    def at_place(self, place: int, chance: float, shift: float, greedy: bool) -> float:
        """`of_drafter` of one of them, the first at 0."""
        own = self.own if greedy else self.own_sampled
        return shifted(chance, own[min(place, len(own) - 1)] + shift, self.slope[not greedy])

    def along(self, length: int, count: int) -> list[float]:
        """r_1..r_m of so many tokens after a match: each that is copied makes the match one longer."""
        key = min(length, self.longest), count
        if key not in self._along:
            of_match = filled(self.chances[length - 1 :] or self.chances[-1:], count) if length else [0.0] * count
            self._along[key] = [
                shifted(chance, shift) for chance, shift in zip(of_match, filled(self.copied, count), strict=True)
            ]
        return self._along[key]


def filled(values: Sequence[float], count: int) -> list[float]:
    """The first so many; further ones are as the last."""
    return [*values[:count], *[values[-1]] * (count - len(values))]
