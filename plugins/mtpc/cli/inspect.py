"""`mtpc inspect DIR`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mtpc.console import console

if TYPE_CHECKING:
    from mtpc.inspection import Inspection

NOT_SHOWN = 100  # longest value of provenance.json that is shown, in characters


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A drafter directory.")],
) -> None:
    """Show what a drafter directory is, or what is wrong with it.

    The directory is loaded as strictly as an engine loads it. Shown are what it is, the parameters of each part, what
    one draft reads, where the drafter comes from, and the lines that serve it. A directory that would not load ends in
    one sentence and exit code 2.

    Example: mtpc inspect weights/byte-mtpc-hmm-n8
    """
    from mtpc.inspection import inspect_drafter

    inspection = inspect_drafter(folder)
    terminal = console()
    terminal.print(describe(inspection))
    if inspection.provenance:
        terminal.print(describe_provenance(inspection.provenance))
    else:
        terminal.print("no provenance.json: nothing says where this drafter comes from")
    terminal.print("\nServe it with vLLM:\n")
    # Printed plainly, so that it can be copied whole whatever the width of the terminal.
    typer.echo(f"vllm serve TARGET {inspection.vllm_arguments()}")
    terminal.print("\nor with SGLang:\n")
    typer.echo(f"python -m sglang.launch_server --model-path TARGET {inspection.sglang_arguments()}")


def describe(inspection: Inspection) -> Table:
    """The facts as a table."""
    table = Table("", "", title=Text(str(inspection.folder)), show_header=False)
    for name, fact in inspection.facts.items():
        table.add_row(name, Text(fact))
    for part, counts in inspection.parameters.items():
        for name, count in counts.items():
            table.add_row(f"{part}: {name}", f"{count:,} parameters")
    table.add_row("all", f"{inspection.total:,} parameters")
    for label, what in zip(("read per draft", *[""] * len(inspection.reads)), inspection.reads, strict=False):
        table.add_row(label, what)
    return table


def describe_provenance(provenance: dict[str, Any]) -> Table:
    """The short entries of provenance.json as a table; long ones by their size."""
    table = Table("", "", title="provenance", show_header=False)
    for key, value in provenance.items():
        text = value if isinstance(value, str) else json.dumps(value)
        shown = text if len(text) <= NOT_SHOWN else f"({len(text):,} characters in provenance.json)"
        table.add_row(Text(key), Text(shown))  # never as rich's own markup: a file may say anything
    return table
