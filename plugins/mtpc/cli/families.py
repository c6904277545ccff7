"""A command for each family of the registry that has one: `mtpc train NAME`, `mtpc convert NAME`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from mtpc.families import Family
    from mtpc.families.family import Command


def family_commands(command_of: Callable[[Family], Command | None]) -> type[TyperGroup]:
    """A group of what ``command_of`` gives for each family; the registry is asked when the group is."""

    class FamilyCommands(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            """The names of the families that have the command."""
            from mtpc.families import families  # and with it torch: only where it is needed

            return [family.name for family in families() if command_of(family) is not None]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """The command of a family; None where there is none."""
            from mtpc.families import families

            for family in families():
                function = command_of(family) if family.name == cmd_name else None
                if function is not None:
                    return _command(function, family.name, family.summary)
            return None

    return FamilyCommands


@cache
def _command(function: Command, name: str, summary: str) -> Any:
    app = typer.Typer(rich_markup_mode="markdown")
    app.command(name, short_help=summary)(function)
    return typer.main.get_command(app)
