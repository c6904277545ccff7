"""A command with kinds, one of which is meant where none is named: `mtpc train --target X` trains circuits."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

HELP = ("--help",)


def with_default(name: str) -> type[TyperGroup]:
    """A group that runs the command ``name`` on arguments that name no command and do not ask for help."""

    class DefaultGroup(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Name the default command where none is named."""
            if args and args[0] not in self.commands and args[0] not in HELP:
                args = [name, *args]
            return super().parse_args(ctx, args)

    return DefaultGroup
