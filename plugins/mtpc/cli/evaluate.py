"""`mtpc evaluate`: the kinds of drafters whose acceptance can be foretold."""

from __future__ import annotations

import typer

from mtpc.cli.default_group import with_default
from mtpc.cli.evaluate_circuits import evaluate_circuits
from mtpc.cli.evaluate_fastmtp import evaluate_fastmtp

HELP = """Expected acceptance on held-out text, without an engine: circuits (MTPC, the default) or MTP layers (FastMTP).

Examples:

mtpc evaluate weights/byte-mtpc-hmm-n8 --target weights/byte-target

mtpc evaluate fastmtp runs/smollm2-fastmtp --target runs/smollm2 --data runs/distilled
"""

app = typer.Typer(cls=with_default("circuits"), help=HELP, no_args_is_help=True, rich_markup_mode="markdown")
app.command("circuits")(evaluate_circuits)
app.command("fastmtp")(evaluate_fastmtp)
