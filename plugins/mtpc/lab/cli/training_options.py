"""Options of several training commands that are no settings of a training: its files, and when it ends."""

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
        help=f"The frozen target: a folder or a Hugging Face id, of model_type {', '.join(LAYER_TYPES)}.",
    ),
]
Data = Annotated[Path, typer.Option(help="Conversations of the target, as `mtpc distill` writes them.")]
Out = Annotated[Path, typer.Option(callback=folder_to_write, help="The drafter checkpoint that is written.")]
States = Annotated[
    Path | None,
    typer.Option(
        callback=folder_to_write,
        help="Keep the target's states in this folder, 2 d bytes a token, so that later epochs and trainings need not "
        "compute them.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(callback=file_to_write, help="State file: written on the way, continued from if there."),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=MOST_MINUTES,
        help="End the training after this time, with the learning rate come down by then; default: the last update.",
    ),
]
Questions = Annotated[
    int, typer.Option(min=0, max=MOST_PROMPTS, help="Held-out questions of each kind to score on; 0: none.")
]
