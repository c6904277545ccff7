"""What a file or an option may hold is declared as a pydantic model; what is wrong with it becomes one sentence."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mtpc.errors import MTPCError

Declared = TypeVar("Declared", bound=BaseModel)


def declared(model: type[Declared], values: Any, name: str) -> Declared:
    """Values out of JSON as the model that declares them; ``name`` stands for them in an error.

    Errors: `MTPCError` for values that the model does not allow: the first of them.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise MTPCError(f"{name} is wrong{f' at {place!r}' if place else ''}: {first['msg']}.") from None
