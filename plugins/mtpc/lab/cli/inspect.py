"""`mtpc inspect DIR`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mtpc.errors import MTPCError
from mtpc.lab.console import console
from mtpc.lab.options.numbers import MOST_NODES
from mtpc.lab.options.paths import file_to_write, model_folder

if TYPE_CHECKING:
    from mtpc.lab.inspect.drafter import Inspection

NOT_SHOWN = 100  # longest value of provenance.json that is shown, in characters


def inspect(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            callback=model_folder,
            help="A drafter: a folder, or a Hugging Face id as in owner/drafter or owner/drafter@revision.",
        ),
    ],
    tree: Annotated[
        str | None,
        typer.Option(metavar="PROMPT", help="Show the tree of drafts of one step after this prompt instead."),
    ] = None,
    target: Annotated[
        Path | None, typer.Option(callback=model_folder, help="The model that the drafts of --tree are for.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Drafts of the tree.")] = 15,
    children: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Drafts after the same one, at most.")] = 4,
    borrow: Annotated[
        int, typer.Option(min=0, max=MOST_NODES, help="Drafts that go on with tokens of longer paths (Gumiho's FTA).")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(callback=file_to_write, help="Where the tree is drawn: a PNG file.")
    ] = None,
) -> None:
    """Show what a drafter checkpoint is, or what is wrong with it; with --tree, what it drafts.

    The directory is loaded as strictly as an engine loads it. Shown are what it is, the parameters of each part, what
    one draft reads, where the drafter comes from, and the lines that serve it. A directory that would not load ends in
    one sentence and exit code 2.

    With --tree the target says the first token after the prompt (an answer's, where it has a chat template), and the
    drafter drafts a tree of what follows, from all tokens, as SGLang would with --speculative-eagle-topk CHILDREN,
    --speculative-num-draft-tokens one more than NODES and --speculative-token-map '?borrow=BORROW'. Beside each draft
    stands how probable the drafter holds all that leads to it (of a borrowed one as far as it can tell); accepted is
    what the target would have said, greedily.

    Examples:
    mtpc inspect weights/byte-mtpc-hmm-n8

    mtpc inspect weights/smollm2-fastmtp --tree "Why is the sky blue?" --target runs/smollm2 --out runs/tree.png

    mtpc inspect weights/byte-mtpc-hmm-n8 --tree "It was the best of " --target weights/byte-target --borrow 6
    """
    if out is not None and tree is None:
        raise MTPCError("--out is the file that the tree of --tree is drawn in: give --tree, too.")
    if tree is not None:
        from mtpc.lab.cli.tree import show_tree
        from mtpc.lab.inspect.tree_step import DraftTreeShape

        show_tree(folder, target, tree, DraftTreeShape(nodes, children, borrow), out)
        return
    from mtpc.lab.inspect.drafter import inspect_drafter

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
