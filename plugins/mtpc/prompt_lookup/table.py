"""Probabilities that a repeated text continues as before, by the length of the match, and their file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from mtpc.files.config_model import Strict, validated
from mtpc.files.json_file import is_there, read_json
from mtpc.prompt_lookup.calibration import limited

FILE = "copying.json"  # in a drafter checkpoint
# For checkpoints without `FILE`: SmolLM2-135M-Instruct along 48,000 tokens of its outputs, greedy and at T = 0.8.
COMMON = (0.22, 0.49, 0.62, 0.66, 0.70, 0.75, 0.78, 0.80, 0.83, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88, 0.96)
Probability = Annotated[float, Field(gt=0, lt=1)]


class CopyingFile(Strict):
    """The contents of ``copying.json``, as ``mtpc train copying`` writes it.

    Attributes:
        chances: Probability that the next token is copied, by the number of matching tokens, from 1 on.
        counts: By the number of matching tokens: how often the text continued as before, and how often it matched.
        arguments: Arguments of the command that wrote the file.
        provenance: How the file was made.
    """

    chances: list[Probability] = Field(min_length=1, max_length=256)
    counts: list[list[int]] | None = None
    arguments: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None


@dataclass(frozen=True)
class CopyTable:
    """Probabilities of prompt lookup by the length of the match.

    The last one holds for all longer matches as well.

    Attributes:
        chances: Probability of the next token by the number of matching tokens, from 1 on.
    """

    chances: tuple[float, ...] = COMMON
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
        return cls(tuple(validated(CopyingFile, read_json(file), str(file)).chances))

    @property
    def longest(self) -> int:
        """Longest match that the table distinguishes."""
        return len(self.chances)

    def after_match(self, length: int, count: int) -> list[float]:
        """Return the copying probabilities r_1..r_m after a match; each copied token makes the match longer.

        Args:
            length: Matching tokens; 0: there is no match.
            count: Number of probabilities, m.
        """
        key = min(length, self.longest), count
        if key not in self._along:
            lengths = range(key[0], key[0] + count)
            of_match = [limited(self.chances[min(each, self.longest) - 1]) for each in lengths]
            self._along[key] = of_match if length else [0.0] * count
        return self._along[key]
