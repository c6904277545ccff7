"""What options that are names or addresses may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import typer
from pydantic import AnyHttpUrl, TypeAdapter, ValidationError

EngineName = Literal["vllm", "sglang"]


def address(url: str | None) -> str | None:
    """Errors: `typer.BadParameter` for what is no address of a server."""
    try:
        if url is not None:
            TypeAdapter(AnyHttpUrl).validate_python(url)
    except ValidationError:
        raise typer.BadParameter(f"{url!r} is no address like http://127.0.0.1:8000.") from None
    return url


@dataclass(frozen=True)
class Named:
    """One or several of some names, with commas; parses an option of typer.

    Errors: ValueError for another name.
    """

    names: tuple[str, ...]

    def __call__(self, value: str | Sequence[str]) -> tuple[str, ...]:
        """Those that are named."""
        chosen = value.split(",") if isinstance(value, str) else value
        for name in chosen:
            if name not in self.names:
                raise ValueError(f"{name!r} is not one of {', '.join(self.names)}")
        return tuple(chosen)


def file_name(name: str) -> str:
    """Errors: `typer.BadParameter` for what cannot begin the name of a file."""
    if not name or "/" in name or len(name) > 200:
        raise typer.BadParameter(f"{name!r} cannot begin the name of a folder.")
    return name
