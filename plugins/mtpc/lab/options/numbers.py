"""Options that are numbers: shared bounds, temperatures, and lists separated by commas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# The limits of `mtpc.draft`, which imports torch: draft tokens per decoding step, and nodes of a draft tree.
MOST_DRAFTS, MOST_NODES = 256, 4096
MOST_SEED = (1 << 63) - 1
MOST_TOKENS = 1_000_000  # tokens of an output
MOST_PROMPTS = 100_000  # prompts per category
MOST_REQUESTS = 4096  # concurrent requests
MOST_UPDATES = 10_000_000
MOST_MINUTES = 1e6
MOST_WIDTH = 1 << 20  # rows or columns of a matrix
LEAST_RATE, MOST_RATE = 1e-9, 10.0  # learning rates

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Bounds(Generic[Number]):
    """Parser of an option that is a number within bounds.

    Attributes:
        least: Smallest allowed number; its type is the option's.
        most: Largest allowed number.
        or_zero: Whether 0 is allowed in addition.
    """

    least: Number
    most: Number
    or_zero: bool = False

    def __call__(self, value: Any) -> Number:
        """Return the number.

        Raises:
            ValueError: The value is not a number within the bounds.
        """
        kind = type(self.least)
        try:
            number = kind(value)
        except (ValueError, OverflowError):
            raise ValueError(f"{value!r} is not a {self}") from None
        if not (self.least <= number <= self.most or (self.or_zero and number == 0)):
            raise ValueError(f"{value} is not a {self}")
        return number

    def __str__(self) -> str:
        """Describe the allowed numbers, for error messages."""
        kind = "whole number" if isinstance(self.least, int) else "number"
        return f"{kind} from {self.least} to {self.most}{' or 0' if self.or_zero else ''}"


@dataclass(frozen=True)
class NumberList(Generic[Number]):
    """Parser of an option that lists one or more numbers, separated by commas.

    Attributes:
        each: Parser of each number.
        most: Largest number of numbers.
    """

    each: Bounds[Number]
    most: int = 64

    def __call__(self, value: Any) -> tuple[Number, ...]:
        """Return the numbers.

        Raises:
            ValueError: A part is not a number within the bounds, or there are too many.
        """
        parts = value.split(",") if isinstance(value, str) else value
        if len(parts) > self.most:
            raise ValueError(f"{len(parts)} numbers were given, but at most {self.most} are allowed")
        return tuple(map(self.each, parts))


TEMPERATURE = Bounds(0.01, 100.0, or_zero=True)  # below 0.01 logits in float32 may overflow
