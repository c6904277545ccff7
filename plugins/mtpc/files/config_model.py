"""Files and options are declared as pydantic models; a violation becomes one sentence."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from mtpc.errors import MTPCError

Declared = TypeVar("Declared", bound=BaseModel)
Value = TypeVar("Value")


class Strict(BaseModel):
    """A pydantic model that accepts declared keys only, each of its exact type, and is immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def validated(model: type[Declared], values: Any, name: str) -> Declared:
    """Validate JSON values by the model that declares them.

    Args:
        model: The model.
        values: Values out of JSON.
        name: Name of the values, for an error.

    Returns:
        The validated model.

    Raises:
        MTPCError: The first value that the model does not allow.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        at, reason = _describe(error, values, model)
        raise MTPCError(f"{name} is wrong{f' at {at}' if at else ''}: {reason}.") from None


def validated_json(kind: type[Value], text: bytes, expected: str) -> Value:
    """Validate JSON text from outside by a type; strings do not count as numbers.

    Args:
        kind: The type, anything that pydantic can validate.
        text: The JSON in UTF-8.
        expected: Beginning of an error; where and what is wrong is appended.

    Returns:
        The validated value.

    Raises:
        MTPCError: The text is not UTF-8 or JSON, is nested too deeply, or is not of the type.
    """
    try:
        value: Value = _adapter(kind).validate_json(text, strict=True)  # type: ignore[arg-type]  # a type can be hashed
    except ValidationError as error:
        at, reason = _describe(error, _read(text), kind)
        raise MTPCError(f"{expected}: {f'at {at}, ' if at else ''}{reason}.") from None
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _read(text: bytes) -> Any:
    """Return parsed JSON; None if it cannot be parsed."""
    try:
        return from_json(text)
    except ValueError:
        return None


def short_repr(value: Any) -> str:
    """Return a value for an error message, shortened and on one line.

    Args:
        value: Any value.
    """
    return " ".join(_SHORT.repr(value).split())


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 2


def _describe(error: ValidationError, values: Any, kind: Any) -> tuple[str, str]:
    """Return where the first violation is (empty for the whole value) and what is wrong."""
    first = error.errors()[0]
    position = _position(values, first)
    return short_repr(".".join(map(str, position))) if position else "", _reason(kind, first, position)


def _position(values: Any, error: ErrorDetails) -> list[str | int]:
    """Return the keys that lead to a violation, without those that pydantic adds for members of a union."""
    position: list[str | int] = []
    for key in error["loc"]:
        try:
            values, inside = values[key], True
        except (LookupError, TypeError):
            inside = False
        if inside or (error["type"] in ("missing", "extra_forbidden") and key == error["loc"][-1]):
            position.append(key)
    return position


def _reason(kind: Any, error: ErrorDetails, position: list[str | int]) -> str:
    """Return what was found and what is allowed."""
    context, message = error.get("ctx", {}), error["msg"].replace(" after validation", "")
    match error["type"]:
        case "missing":
            return f"the key {short_repr(position[-1])} is missing"
        case "union_tag_not_found":
            return f"the key {context['discriminator']} is missing"
        case "union_tag_invalid":
            allowed = context["expected_tags"]
            return f"its {context['discriminator']} is {short_repr(context['tag'])}, but should be one of {allowed}"
        case "extra_forbidden":
            keys = ", ".join(keys_of(_model_at(kind, position[:-1])))
            return f"unknown key {short_repr(position[-1])}{f'; the keys are {keys}' if keys else ''}"
        case "bool_type" | "bool_parsing":
            return f"it is {short_repr(error['input'])}, but should be true or false"
        case "model_type":
            return f"it is {short_repr(error['input'])}, but should be a JSON object"
        case "value_error":
            return str(context["error"]).rstrip(".")
    if message.startswith("Input should"):
        return f"it is {short_repr(error['input'])}, but {message.removeprefix('Input ')}"
    return message[:1].lower() + message[1:]


def keys_of(model: Any) -> list[str]:
    """Return the keys that a pydantic model declares, by the names that users write; none for anything else.

    Args:
        model: The model.
    """
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _model_at(kind: Any, position: Sequence[str | int]) -> Any:
    """Return the model of the value at a position; None where it is no model, or one of several."""
    for key in position:
        fields = getattr(kind, "model_fields", {}).items()
        found = [field.annotation for name, field in fields if key in (name, field.alias)]
        models = [
            each for each in (*found, *chain.from_iterable(map(get_args, found))) if hasattr(each, "model_fields")
        ]
        kind = models[0] if len(models) == 1 else None
    return kind
