"""Options that are lists of numbers."""

from __future__ import annotations

from typing import TypeVar

from mtpc.errors import MTPCError

Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], option: str) -> tuple[Number, ...]:
    """The numbers of a list with commas.

    Errors: `MTPCError` for anything that is not one.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        name = "whole numbers" if kind is int else "numbers"
        raise MTPCError(f"{option} is {text!r}, but {name} with commas between them were expected.") from None
