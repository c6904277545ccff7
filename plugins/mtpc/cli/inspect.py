"""`mtpc inspect DIR`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from mtpc.inspection import Inspection

NOT_SHOWN = 100  # longest value of provenance.json that is shown, in characters


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A drafter directory.")],
) -> None:
    """Show what a drafter directory is, or what is wrong with it.

    The directory is loaded as strictly as an engine loads it. Shown are the circuit, the parameters of each part, what
    one draft reads, where the drafter comes from, and the lines that serve it. A directory that would not load ends in
    one sentence and exit code 2.

    Example: mtpc inspect weights/byte-mtpc-hmm-n8
    """
    from mtpc.inspection import inspect_drafter, sglang_arguments

    found = inspect_drafter(folder)
    console = Console()
    console.print(describe(found))
    if found.provenance:
        console.print(describe_provenance(found.provenance))
    else:
        console.print("no provenance.json: nothing says where this drafter comes from")
    console.print("\nServe it with vLLM:\n")
    # Printed plainly, so that it can be copied whole whatever the width of the terminal.
    typer.echo(f"vllm serve TARGET --speculative-config '{found.speculative_config()}'")
    console.print("\nor with SGLang:\n")
    typer.echo(f"python -m sglang.launch_server --model-path TARGET {sglang_arguments(folder)}")


def describe(found: Inspection) -> Table:
    """The facts as a table."""
    config = found.config
    table = Table("", "", title=str(found.folder), show_header=False)
    table.add_row("circuit", config.circuit)
    table.add_row("window n", f"{config.window} tokens: the target's own next token and {found.max_drafts} drafts")
    own = "an input of the trunk" if config.token_input else "evidence of the circuit"
    table.add_row("target's own token", own)
    table.add_row("rank R", str(config.rank))
    table.add_row("leaves", config.leaves)
    table.add_row("target", f"hidden size {config.hidden_size}, vocabulary {config.vocab_size}")
    for name, count in found.parameters.items():
        table.add_row(f"parameters: {name}", f"{count:,}")
    table.add_row("parameters", f"{sum(found.parameters.values()):,}")
    table.add_row("read per draft", f"{mib(found.weight_bytes)} of weights in bfloat16, whatever the batch size")
    table.add_row("", f"{mib(found.leaf_bytes)} of leaf distributions in float32, for each request")
    return table


def describe_provenance(provenance: dict[str, Any]) -> Table:
    """The short entries of provenance.json as a table; long ones by their size."""
    table = Table("", "", title="provenance", show_header=False)
    for key, value in provenance.items():
        text = value if isinstance(value, str) else json.dumps(value)
        table.add_row(key, text if len(text) <= NOT_SHOWN else f"({len(text):,} characters in provenance.json)")
    return table


def mib(size: int) -> str:
    """A number of bytes in MiB."""
    return f"{size / 2**20:.2f} MiB"
