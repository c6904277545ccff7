"""`mtpc convert FAMILY`."""

from __future__ import annotations

import typer

from mtpc.cli.families import family_commands

HELP = """Turn published checkpoints of a family into drafter directories.

Example: mtpc convert fastmtp downloads/FastMTP runs/mimo-fastmtp
"""

app = typer.Typer(
    cls=family_commands(lambda family: family.convert()), help=HELP, no_args_is_help=True, rich_markup_mode="markdown"
)


@app.callback()
def options() -> None:
    """No options before the family."""
