"""Options that are names or addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import typer
from pydantic import AnyHttpUrl, TypeAdapter, ValidationError

EngineName = Literal["vllm", "sglang"]


def address(url: str | None) -> str | None:
    """Check the address of a server.

    Args:
        url: The option's value; None where it was not given.

    Returns:
        The same value.

    Raises:
        typer.BadParameter: The value is not an HTTP address.
    """
    try:
        if url is not None:
            TypeAdapter(AnyHttpUrl).validate_python(url)
    except ValidationError:
        raise typer.BadParameter(f"{url!r} is not an address like http://127.0.0.1:8000.") from None
    return url


@dataclass(frozen=True)
class NameList:
    """Parser of an option that lists one or more of the allowed names, separated by commas.

    Attributes:
        names: The allowed names.
    """

    names: tuple[str, ...]

    def __call__(self, value: str | Sequence[str]) -> tuple[str, ...]:
        """Return the listed names.

        Raises:
            ValueError: A name is not allowed.
        """
        chosen = value.split(",") if isinstance(value, str) else value
        for name in chosen:
            if name not in self.names:
                raise ValueError(f"{name!r} is not one of {', '.join(self.names)}")
        return tuple(chosen)


def file_name(name: str) -> str:
    """Check the first part of a file's or folder's name.

    Args:
        name: The option's value.

    Returns:
        The same value.

    Raises:
        typer.BadParameter: The value is empty, too long, or contains a slash.
    """
    if not name or "/" in name or len(name) > 200:
        raise typer.BadParameter(f"{name!r} cannot begin a folder name: give 1 to 200 characters without '/'.")
    return name
