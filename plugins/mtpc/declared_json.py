"""JSON that somebody else may have written, as the type that declares it: however it is damaged, one sentence."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mtpc.errors import MTPCError

Declared = TypeVar("Declared")


def declared_json(kind: type[Declared], text: bytes, expected: str) -> Declared:
    """The value that the bytes state; numbers are no strings, and nothing is converted.

    expected: the beginning of an error, which ends with what is wrong and where.

    Errors: `MTPCError` for anything else: bytes that are no UTF-8, no JSON, too deep, or not what the type declares.
    """
    try:
        value: Declared = _adapter(kind).validate_json(text, strict=True)  # type: ignore[arg-type]  # types are hashable
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise MTPCError(f"{expected}: {f'at {place!r}, ' if place else ''}{first['msg']}.") from None
    return value


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
