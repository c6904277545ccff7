"""Options that `mtpc train` and `mtpc convert` share between draft methods: files, sizes, and the end of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mtpc.autoregressive.kinds import LAYER_TYPES
from mtpc.lab.options.numbers import MOST_MINUTES, MOST_PROMPTS, MOST_WIDTH
from mtpc.lab.options.paths import file_to_write, folder_to_write, model_folder, new_folder, published_folder

Target = Annotated[
    Path,
    typer.Option(
        callback=model_folder,
        help=f"Target of the drafter: a folder or a Hugging Face id with model_type {', '.join(LAYER_TYPES)}.",
    ),
]
AnyTarget = Annotated[
    Path, typer.Option(callback=model_folder, help="Target of the drafters: a folder or a Hugging Face id.")
]
ServedTarget = Annotated[
    Path, typer.Option(callback=model_folder, help="Target to serve: a folder or a Hugging Face id.")
]
Data = Annotated[Path, typer.Option(help="Folder of conversations that `mtpc distill` wrote with the target.")]
Out = Annotated[
    Path,
    typer.Option(
        callback=folder_to_write,
        help="Folder for the drafter checkpoint: new or empty, except where --resume continues a training.",
    ),
]
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
    typer.Option(
        callback=file_to_write, help="State file: written during training and at Ctrl-C, and continued if it exists."
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=MOST_MINUTES,
        help="Finish training in this time, learning rate schedule included. The evaluation on held-out questions "
        "takes additional time; --questions 0 skips it [default: train all updates].",
    ),
]
Questions = Annotated[
    int,
    typer.Option(
        min=0, max=MOST_PROMPTS, help="Held-out questions per category to evaluate on; 0 skips the evaluation."
    ),
]

Published = Annotated[
    Path,
    typer.Argument(
        metavar="SRC", callback=published_folder, help="Published checkpoint: a folder or a Hugging Face id."
    ),
]
Converted = Annotated[
    Path, typer.Argument(metavar="DIR", callback=new_folder, help="New folder for the drafter checkpoint.")
]
ConvertedOut = Annotated[Path, typer.Option(callback=new_folder, help="New folder for the drafter checkpoint.")]


@dataclass(frozen=True)
class HeadSizes:
    """Widths of a circuit's head, see `mtpc.parallel.config`.

    Attributes:
        leaf_features: Width m of the shared unembedding.
        component_features: Contextual features k per component.
        sum_features: Features that the mixture weights are computed from.
        trunk_size: Width of the residual layer before the circuit.
    """

    leaf_features: Annotated[int, typer.Option(min=1, max=MOST_WIDTH, help="Width m of the shared unembedding.")] = 128
    component_features: Annotated[
        int, typer.Option(min=1, max=MOST_WIDTH, help="Contextual features k per component.")
    ] = 32
    sum_features: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_WIDTH, help="Features that the mixture weights are computed from; 0 is the hidden state."
        ),
    ] = 32
    trunk_size: Annotated[
        int, typer.Option(min=0, max=MOST_WIDTH, help="Width of the residual layer before the circuit; 0 is none.")
    ] = 768
