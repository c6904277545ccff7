"""`mtpc train`: the kinds of drafters that can be trained."""

from __future__ import annotations

import typer

from mtpc.cli.default_group import with_default
from mtpc.cli.train_circuits import train_circuits
from mtpc.cli.train_fastmtp import train_fastmtp

HELP = """Train drafters for a frozen target: circuits (MTPC, the default) or an MTP layer (FastMTP).

Examples:

mtpc train --target weights/byte-target --circuits btree --windows 8 --out runs

mtpc train fastmtp --target runs/smollm2 --data runs/distilled --out runs/smollm2-fastmtp
"""

app = typer.Typer(cls=with_default("circuits"), help=HELP, no_args_is_help=True, rich_markup_mode="markdown")
app.command("circuits")(train_circuits)
app.command("fastmtp")(train_fastmtp)
