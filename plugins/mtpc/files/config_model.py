"""What a file or an option may hold is declared as a pydantic model; what is wrong with it becomes one sentence."""

from __future__ import annotations

import reprlib
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from mtpc.errors import MTPCError

Declared = TypeVar("Declared", bound=BaseModel)
Value = TypeVar("Value")


class Strict(BaseModel):
    """Nothing but the keys that are declared, each of its own type; it does not change any more."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def declared(model: type[Declared], values: Any, name: str) -> Declared:
    """Values out of JSON as the model that declares them; ``name`` stands for them in an error.

    Errors: `MTPCError` for values that the model does not allow: the first of them.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        at, reason = _told(error, values, model)
        raise MTPCError(f"{name} is wrong{f' at {at}' if at else ''}: {reason}.") from None


def declared_json(kind: type[Value], text: bytes, expected: str) -> Value:
    """The value that JSON states which somebody else may have written; numbers are no strings.

    expected: the beginning of an error, which ends with what is wrong and where.

    Errors: `MTPCError` for anything else: bytes that are no UTF-8, no JSON, too deep, or not what the type declares.
    """
    try:
        value: Value = _adapter(kind).validate_json(text, strict=True)  # type: ignore[arg-type]  # a type can be hashed
    except ValidationError as error:
        at, reason = _told(error, _read(text), kind)
        raise MTPCError(f"{expected}: {f'at {at}, ' if at else ''}{reason}.") from None
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _read(text: bytes) -> Any:
    """Nothing where it cannot be read."""
    try:
        return from_json(text)
    except ValueError:
        return None


def shown(value: Any) -> str:
    """A value in an error, on one line and shortened."""
    return " ".join(_SHORT.repr(value).split())


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 2


def _told(error: ValidationError, values: Any, kind: Any) -> tuple[str, str]:
    """Where the first thing is that is wrong, or nothing where that is the whole, and what is wrong."""
    first = error.errors()[0]
    place = _place(values, first)
    return shown(".".join(map(str, place))) if place else "", _reason(kind, first, place)


def _place(values: Any, error: ErrorDetails) -> list[str | int]:
    """The keys that lead to what is wrong, without what pydantic adds of its own: the kinds of a union."""
    place: list[str | int] = []
    for key in error["loc"]:
        try:
            values, inside = values[key], True
        except (LookupError, TypeError):
            inside = False
        if inside or (error["type"] in ("missing", "extra_forbidden") and key == error["loc"][-1]):
            place.append(key)
    return place


def _reason(kind: Any, error: ErrorDetails, place: list[str | int]) -> str:
    """What was found, and what is allowed."""
    about, said = error.get("ctx", {}), error["msg"].replace(" after validation", "")
    match error["type"]:
        case "missing":
            return f"the key {shown(place[-1])} is missing"
        case "union_tag_not_found":
            return f"the key {about['discriminator']} is missing"
        case "union_tag_invalid":
            return f"its {about['discriminator']} is {shown(about['tag'])}, but should be of {about['expected_tags']}"
        case "extra_forbidden":
            fields = getattr(kind, "model_fields", {}) if len(place) == 1 else {}
            keys = ", ".join(field.alias or name for name, field in fields.items())
            return f"unknown key {shown(place[-1])}{f'; the keys are {keys}' if keys else ''}"
        case "model_type":
            return f"it is {shown(error['input'])}, but should be an object of JSON"
        case "value_error":
            return str(about["error"]).rstrip(".")
    if said.startswith("Input should"):
        return f"it is {shown(error['input'])}, but {said.removeprefix('Input ')}"
    return said[:1].lower() + said[1:]
