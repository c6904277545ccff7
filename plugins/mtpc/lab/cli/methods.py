"""The commands of draft methods: `mtpc train NAME` and `mtpc convert NAME`.

They are entry points of the groups ``mtpc.train`` and ``mtpc.convert``, under the method's name in the registry.  Each
is a function whose parameters are the command's options for typer, and whose docstring is its help.
A published model whose heads become a drafter of a method may have a command of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

import typer
from typer.core import TyperGroup

from mtpc.errors import MTPCError

NO_MODELS: Mapping[str, str] = {}
OTHER_GROUP = {"mtpc.train": "mtpc.convert", "mtpc.convert": "mtpc.train"}


def method_commands(group: str, models: Mapping[str, str] = NO_MODELS) -> type[TyperGroup]:
    """Return a group of the commands of an entry point group, in the registry's order, which loads them on demand.

    Args:
        group: The entry point group.
        models: A line for each published model that has a command, by name.
    """

    class MethodCommands(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            """Return the names of the methods and models that have the command."""
            return list(_summaries(group, models))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Return the command of a method or model, or None."""
            summary = _summaries(group, models).get(cmd_name)
            return None if summary is None else _command(group, cmd_name, summary)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Find the command, or name the one of the other group where only that has the method."""
            name, other = args[0], OTHER_GROUP[group]
            if name not in _entries(group) and name in _entries(other):
                verb, instead = group.removeprefix("mtpc."), other.removeprefix("mtpc.")
                raise MTPCError(f"There is no `mtpc {verb} {name}`: use `mtpc {instead} {name}`.")
            return super().resolve_command(ctx, args)

    return MethodCommands


def _entries(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=group)}


def _summaries(group: str, models: Mapping[str, str]) -> dict[str, str]:
    """Return a line for each method or model that has the command, by name."""
    from mtpc.methods import draft_methods  # imports torch, so only on demand

    entries = _entries(group)
    methods = {method.name: method.summary for method in draft_methods()}
    return {name: line for name, line in {**methods, **models}.items() if name in entries}


@cache
def _command(group: str, name: str, summary: str) -> Any:
    app = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    app.command(name, short_help=summary)(_entries(group)[name].load())
    return typer.main.get_command(app)
