"""The command group: an `MTPCError` from any command becomes one sentence and exit code 2."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from mtpc.errors import MTPCError


class Group(TyperGroup):
    """Shows an `MTPCError` as it is, on standard error, without a stack trace."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except MTPCError as error:
            print(f"mtpc: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
