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
from mtpc.lab.options.settings import refuse_options

if TYPE_CHECKING:
    from mtpc.lab.inspect.drafter import Inspection

MAX_SHOWN = 100  # longest value of provenance.json that is printed, in characters
MAX_COMMAND = 2000  # the same for the command that made the drafter
COMMAND, HELDOUT = "command", "heldout_acceptance"  # keys of provenance.json that are printed in their own way


def inspect(
    invocation: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            callback=model_folder,
            help="Drafter checkpoint: a folder, or a Hugging Face id as in owner/drafter or owner/drafter@revision.",
        ),
    ],
    tree: Annotated[
        str | None,
        typer.Option(metavar="PROMPT", help="Show the draft tree of one decoding step after this prompt instead."),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(callback=model_folder, help="Check the drafter with this target. Required with --tree."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Number of draft tokens in the tree.")] = 15,
    children: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Largest number of children per tree node.")] = 4,
    borrow: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_NODES, help="Number of borrowed nodes in the tree (full tree attention of Gumiho)."
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(callback=file_to_write, help="Draw the tree of --tree to this PNG file.")
    ] = None,
) -> None:
    """Validate a drafter checkpoint, describe it, and print the commands that serve it; with --tree, show its drafts.

    The checkpoint is loaded as strictly as an engine loads it. The output lists the draft method, the parameters of
    each part, the memory that a draft reads, the provenance, and the commands for both engines. A checkpoint that would
    not load gives one sentence and exit code 2. With --target, so does a target of other sizes or another vocabulary.

    With --tree the target generates one token after the prompt, and the drafter drafts a tree after it. The tree is the
    one of SGLang with --speculative-eagle-topk CHILDREN, --speculative-num-draft-tokens NODES + 1 and
    --speculative-token-map '?borrow=BORROW'. Each draft token shows the drafter's probability of its path. Accepted are
    the tokens that the target generates greedily.

    Examples:
    ```
    mtpc inspect weights/byte-mtpc-hmm-n8

    # Check it with a target as well.
    mtpc inspect weights/byte-mtpc-hmm-n8 --target weights/byte-target

    # Show the draft tree of one decoding step.
    mtpc inspect runs/fastmtp --target runs/smollm2 --tree "Why is it blue?"

    # Draw it.
    mtpc inspect runs/fastmtp --target runs/smollm2 --tree Hi --out tree.png
    ```
    """
    if out is not None and tree is None:
        raise MTPCError("--out requires --tree PROMPT: it is the file that the tree is drawn to.")
    if tree is None:
        refuse_options(invocation, ("nodes", "children", "borrow"), "without --tree PROMPT")
    else:
        from mtpc.lab.cli.tree import show_tree
        from mtpc.lab.inspect.tree_step import DraftTreeShape

        show_tree(folder, target, tree, DraftTreeShape(nodes, children, borrow), out)
        return
    from mtpc.lab.inspect.drafter import inspect_drafter

    inspection = inspect_drafter(folder, target)
    terminal = console()
    terminal.print(describe(inspection))
    if inspection.provenance:
        terminal.print(describe_provenance(inspection.provenance))
    else:
        terminal.print("no provenance.json: the origin of this drafter is unknown")
    for title, command in zip(("Serve it with vLLM:", "or with SGLang:"), inspection.commands(), strict=True):
        terminal.print(f"\n{title}\n")
        typer.echo(command)  # without wrapping, so that it can be pasted whatever the width of the terminal


def describe(inspection: Inspection) -> Table:
    """Return the facts as a table."""
    table = Table("", "", title=Text(str(inspection.folder)), show_header=False)
    for name, fact in inspection.facts.items():
        table.add_row(name, Text(fact))
    for part, counts in inspection.parameters.items():
        for name, count in counts.items():
            table.add_row(f"{part}: {name}", f"{count:,} parameters")
    table.add_row("total", f"{inspection.total:,} parameters")
    for label, what in zip(("read per draft", *[""] * len(inspection.reads)), inspection.reads, strict=False):
        table.add_row(label, what)
    return table


def describe_provenance(provenance: dict[str, Any]) -> Table:
    """Return the entries of provenance.json as a table, with the size in place of long ones."""
    table = Table(title="provenance", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in provenance.items():
        text = value if isinstance(value, str) else json.dumps(value)
        shown = text if len(text) <= (MAX_COMMAND if key == COMMAND else MAX_SHOWN) else None
        if key == HELDOUT:
            shown = acceptance_lengths(value) or shown
        shown = shown or f"({len(text):,} characters in provenance.json)"
        table.add_row(Text(key), Text(shown))  # as plain text: a file may contain rich markup
    return table


def acceptance_lengths(results: Any) -> str | None:
    """Return the acceptance lengths of held-out text by temperature in one line.

    Args:
        results: Value of ``heldout_acceptance``: figures by column, as in "all T=0" for all categories of prompts.

    Returns:
        The line; None where the value has another form.
    """
    figures = results if isinstance(results, dict) else {}
    lengths = {
        column: length
        for column, one in figures.items()
        if isinstance(one, dict) and isinstance(length := one.get("acceptance_length"), (int, float))
    }
    whole = {column.removeprefix("all "): lengths[column] for column in lengths if column.startswith("all ")}
    listed = ", ".join(f"{length:.2f} ({column})" for column, length in (whole or lengths).items())
    return f"acceptance length {listed}" if listed else None
