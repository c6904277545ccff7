"""What options that are numbers may be: bounds that several share, temperatures, and lists with commas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

MOST_DRAFTS = 256  # of a step
MOST_NODES = 4096  # of a tree of them
MOST_SEED = (1 << 63) - 1
MOST_TOKENS = 1_000_000  # of a text
MOST_PROMPTS = 100_000  # of a kind
MOST_REQUESTS = 4096  # at a time
MOST_UPDATES = 10_000_000
MOST_MINUTES = 1e6
MOST_WIDTH = 1 << 20  # rows or columns of a matrix
LEAST_RATE, MOST_RATE = 1e-9, 10.0  # of learning

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Bounds(Generic[Number]):
    """A number from ``least`` to ``most``, or also 0; parses an option of typer.

    Errors: ValueError for anything else.
    """

    least: Number
    most: Number
    or_zero: bool = False

    def __call__(self, value: Any) -> Number:
        """The number."""
        kind = type(self.least)
        try:
            number = kind(value)
        except (ValueError, OverflowError):
            raise ValueError(f"{value!r} is not a {self}") from None
        if not (self.least <= number <= self.most or (self.or_zero and number == 0)):
            raise ValueError(f"{value} is not a {self}")
        return number

    def __str__(self) -> str:
        """In words."""
        kind = "whole number" if isinstance(self.least, int) else "number"
        return f"{kind} from {self.least} to {self.most}{' or 0' if self.or_zero else ''}"


@dataclass(frozen=True)
class Listed(Generic[Number]):
    """At least one number, with commas; parses an option of typer.

    Errors: ValueError for anything else.
    """

    each: Bounds[Number]
    most: int = 64  # of them

    def __call__(self, value: Any) -> tuple[Number, ...]:
        """The numbers."""
        parts = value.split(",") if isinstance(value, str) else value
        if len(parts) > self.most:
            raise ValueError(f"{len(parts)} numbers are more than {self.most}")
        return tuple(map(self.each, parts))


TEMPERATURE = Bounds(0.01, 100.0, or_zero=True)  # closer to 0 a float32 overflows
