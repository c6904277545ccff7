"""`mtpc convert DRAFT_METHOD`."""

from __future__ import annotations

import typer

from mtpc.lab.cli.methods import method_commands

HELP = """Convert published checkpoints of a draft method into drafter checkpoints.

Example:
```
mtpc convert fastmtp downloads/FastMTP runs/mimo-fastmtp
```
"""

MODELS = {"evabyte": "the multi-byte heads of EvaByte, as a circuit of independent tokens"}

app = typer.Typer(
    cls=method_commands("mtpc.convert", MODELS), help=HELP, no_args_is_help=True, rich_markup_mode="markdown"
)


@app.callback()
def options() -> None:
    """Take no options before the draft method."""
