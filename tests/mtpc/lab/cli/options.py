"""Every option and argument that a command declares, as typer knows it: what tests of the command line go through."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from mtpc.lab.cli.main import app
from mtpc.lab.options.names import address

NO_SERVER = "http://127.0.0.1:1"


class Option(NamedTuple):
    """words: of the command.  name: as it is given, "" for an argument.  kind: its type, without None and list."""

    words: tuple[str, ...]
    name: str
    kind: Any
    info: OptionInfo | ArgumentInfo
    required: bool

    def __str__(self) -> str:
        """For the name of a test."""
        return " ".join((*self.words, self.name))

    def given(self, value: str) -> list[str]:
        """It with a value, as it stands on a line."""
        return [f"{self.name}={value}"] if self.name else [value]


@cache
def options() -> tuple[Option, ...]:
    """All of them."""
    return tuple(_of(typer.main.get_command(app), ()))


def _of(command: Any, words: tuple[str, ...]) -> Iterator[Option]:
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from _of(command.get_command(None, name), (*words, name))
        return
    function = inspect.unwrap(command.callback)
    hints = get_type_hints(function, include_extras=True)
    for parameter in command.params:
        if parameter.name not in hints:
            continue  # typer's own, as --help
        kind, info = _split(hints[parameter.name])
        name = parameter.opts[0] if isinstance(info, OptionInfo) else ""
        yield Option(words, name, kind, info, parameter.required)


def _split(hint: Any) -> tuple[Any, OptionInfo | ArgumentInfo]:
    assert get_origin(hint) is Annotated
    kind, *others = get_args(hint)
    (info,) = (each for each in others if isinstance(each, (OptionInfo, ArgumentInfo)))
    if type(None) in get_args(kind):
        kind = Union[tuple(each for each in get_args(kind) if each is not type(None))]  # noqa: UP007 (made of a tuple)
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    return kind, info


def least_line(words: tuple[str, ...], but: Option) -> list[str]:
    """A command with what it must be given, but for one option, and nothing that exists."""
    line = [*words]
    for option in options():
        if option.words == words and option.required and option.name != but.name:
            line += option.given(NO_SERVER if option.info.callback is address else f"a {option.name.strip('-')}")
        elif option.words == words and option.required and not option.name and option.info is not but.info:
            line += ["an argument"]
    return line


def files_of(folder: Path) -> list[str]:
    """What there is in a folder, however deep."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
