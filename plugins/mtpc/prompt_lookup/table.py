"""Probabilities that a repeated text continues as before, by the length of the match, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from mtpc.files.config_model import Strict, validated
from mtpc.files.json_file import is_there, read_json
from mtpc.prompt_lookup.calibration import calibrated

FILE = "copying.json"  # in a drafter checkpoint
# For checkpoints without `FILE`: SmolLM2-135M-Instruct along 48,000 tokens of its outputs, greedy and at T = 0.8.
COMMON = (0.22, 0.49, 0.62, 0.66, 0.70, 0.75, 0.78, 0.80, 0.83, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88, 0.96)
DEFAULT_TYPICAL = (0.6, 0.6)  # for checkpoints without `typical`
# Factors on the logit of the drafter's largest probability, measured for both drafters that ship.  Tokens drawn from a
# flat distribution are accepted more often than its largest probability, from a peaked one less often.
DEFAULT_SLOPE = (1.0, 0.5)
Probability = Annotated[float, Field(gt=0, lt=1)]
Slope = Annotated[float, Field(gt=0, le=2)]


class CopyingFile(Strict):
    """The contents of ``copying.json``, as ``mtpc train copying`` writes it.

    Attributes:
        chances: Probability that the next token is copied, by the number of matching tokens, from 1 on.
        own: Added to the logits of the drafter's probabilities in greedy requests, by position in the draft.
        copied: Added to the logits of copying probabilities, by position in the draft.
        own_sampled: As `own`, for requests with a temperature above 0.
        slope: Factors on the logits of the drafter's probabilities: greedy requests, others.
        typical: Acceptance rate of the drafter's tokens where all before them were accepted: greedy requests, others.
        counts: By the number of matching tokens: how often the text continued as before, and how often it matched.
        arguments: Arguments of the command that wrote the file.
        provenance: How the file was made.
        own_from: How `own` was measured.
        copied_from: How `copied` was measured.
        own_sampled_from: How `own_sampled` was measured.
        typical_from: How `typical` was measured.
    """

    chances: list[Probability] = Field(min_length=1, max_length=256)
    own: list[Annotated[float, Field(ge=-3, le=3)]] = Field(default=[0.0], min_length=1, max_length=256)
    copied: list[Annotated[float, Field(ge=-3, le=3)]] = Field(default=[0.0], min_length=1, max_length=256)
    own_sampled: list[Annotated[float, Field(ge=-3, le=3)]] = Field(default=[0.0], min_length=1, max_length=256)
    slope: Annotated[tuple[Slope, Slope], Field(strict=False)] = DEFAULT_SLOPE
    typical: Annotated[tuple[Probability, Probability], Field(strict=False)] = DEFAULT_TYPICAL
    counts: list[list[int]] | None = None
    arguments: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    own_from: str | None = None
    copied_from: str | None = None
    own_sampled_from: str | None = None
    typical_from: str | None = None


@dataclass(frozen=True)
class CopyTable:
    """Probabilities of prompt lookup, and corrections of the drafter's confidence.

    A list by length or by position extends to all further ones with its last value.  A drafter may be overconfident or
    underconfident, and tokens after accepted ones are accepted more often.

    Attributes:
        chances: Probability of the next token by the number of matching tokens, from 1 on.
        own: Added to the logits of the drafter's probabilities in greedy requests, by position.
        copied: Added to the logits of copying probabilities, by position.
        own_sampled: As ``own``, for requests with a temperature above 0.
        slope: Factors on the logits before ``own`` and ``own_sampled`` are added.
        typical: Acceptance rate of the drafter's tokens where those before were accepted: greedy requests, others.
    """

    chances: tuple[float, ...] = COMMON
    own: tuple[float, ...] = (0.0,)
    copied: tuple[float, ...] = (0.0,)
    own_sampled: tuple[float, ...] = (0.0,)
    slope: tuple[float, float] = DEFAULT_SLOPE
    typical: tuple[float, float] = DEFAULT_TYPICAL
    _along: dict[tuple[int, int], list[float]] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read the table of a drafter checkpoint; defaults without a file.

        Args:
            folder: The drafter checkpoint.

        Raises:
            MTPCError: The file does not contain a table.
        """
        file = folder / FILE
        if not is_there(file):
            return cls()
        content = validated(CopyingFile, read_json(file), str(file))
        return cls(
            tuple(content.chances),
            tuple(content.own),
            tuple(content.copied),
            tuple(content.own_sampled),
            content.slope,
            content.typical,
        )

    @property
    def longest(self) -> int:
        """Longest match that the table distinguishes."""
        return len(self.chances)

    def of_drafter(self, chances: Sequence[float], offset: float = 0.0, greedy: bool = True) -> list[float]:
        """Return corrected acceptance probabilities of the drafter's tokens.

        Args:
            chances: The drafter's largest probability at each position of its draft.
            offset: Added to all logits as well; see `mtpc.prompt_lookup.calibration.Calibration`.
            greedy: Whether the request has a temperature of 0.
        """
        return [self.at_position(position, chance, offset, greedy) for position, chance in enumerate(chances)]

    def at_position(self, position: int, chance: float, offset: float, greedy: bool) -> float:
        """Return `of_drafter` of one position.

        Args:
            position: Position in the draft, from 0.
            chance: The drafter's largest probability there.
            offset: Added to the logit as well.
            greedy: Whether the request has a temperature of 0.
        """
        own = self.own if greedy else self.own_sampled
        return calibrated(chance, own[min(position, len(own) - 1)] + offset, self.slope[not greedy])

    def after_match(self, length: int, count: int) -> list[float]:
        """Return the copying probabilities r_1..r_m after a match; each copied token makes the match longer.

        Args:
            length: Matching tokens; 0: there is no match.
            count: Number of probabilities, m.
        """
        key = min(length, self.longest), count
        if key not in self._along:
            of_match = padded(self.chances[length - 1 :] or self.chances[-1:], count) if length else [0.0] * count
            self._along[key] = [
                calibrated(chance, offset) for chance, offset in zip(of_match, padded(self.copied, count), strict=True)
            ]
        return self._along[key]


def padded(values: Sequence[float], count: int) -> list[float]:
    """Return this many values, repeating the last one."""
    return [*values[:count], *[values[-1]] * (count - len(values))]
