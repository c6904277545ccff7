"""Options that several training commands share: files, and the end of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.autoregressive.kinds import LAYER_TYPES
from mtpc.lab.options.numbers import MOST_MINUTES, MOST_PROMPTS
from mtpc.lab.options.paths import file_to_write, folder_to_write, model_folder

Target = Annotated[
    Path,
    typer.Option(
        callback=model_folder,
        help=f"Target of the drafter: a folder or a Hugging Face id with model_type {', '.join(LAYER_TYPES)}.",
    ),
]
Data = Annotated[Path, typer.Option(help="Folder of conversations that `mtpc distill` wrote with the target.")]
Out = Annotated[Path, typer.Option(callback=folder_to_write, help="Folder for the drafter checkpoint.")]
States = Annotated[
    Path | None,
    typer.Option(
        callback=folder_to_write,
        help="Store the target's hidden states in this folder for later epochs and trainings: 2 bytes per token and "
        "hidden dimension.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(callback=file_to_write, help="State file: written during training, and continued if it exists."),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=MOST_MINUTES,
        help="Finish training in this time, learning rate schedule included [default: train all updates].",
    ),
]
Questions = Annotated[
    int,
    typer.Option(
        min=0, max=MOST_PROMPTS, help="Held-out questions per category to evaluate on; 0 skips the evaluation."
    ),
]
