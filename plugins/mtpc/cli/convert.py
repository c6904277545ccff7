"""`mtpc convert fastmtp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Turn published checkpoints into drafter directories.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Turn published checkpoints into drafter directories."""


@app.command("fastmtp")
def fastmtp(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The downloaded checkpoint: a Hugging Face folder.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The drafter directory that is written.")],
    num_drafts: Annotated[
        int | None, typer.Option(min=1, help="Steps K [default: as trained; 1 where the checkpoint does not say].")
    ] = None,
) -> None:
    """Take the MTP layer out of a FastMTP or MiMo checkpoint (TencentBAC/FastMTP, XiaomiMiMo/MiMo-7B-RL).

    Only the tensors of that layer are read, from one safetensors file or from several with an index; embedding and
    output head stay the target's, which is MiMo-7B-RL in both cases. A checkpoint of another layout, or one that
    holds anything unknown, is refused with one sentence.

    Examples:

    mtpc convert fastmtp downloads/FastMTP runs/mimo-fastmtp

    mtpc convert fastmtp downloads/MiMo-7B-RL runs/mimo-vanilla --num-drafts 3
    """
    from mtpc.convert.fastmtp import convert_fastmtp

    layer = convert_fastmtp(source, folder, num_drafts)
    config = layer.config
    parameters = sum(weight.numel() for weight in layer.parameters())
    typer.echo(
        f"{folder}: an MTP layer of {parameters:,} parameters for a target of hidden size {config.hidden_size} and "
        f"vocabulary {config.vocab_size}, {config.num_drafts} drafts a step"
    )
