"""Options that every training on conversations has on the command line, each with what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.numbers import (
    LEAST_RATE,
    MOST_MINUTES,
    MOST_PROMPTS,
    MOST_RATE,
    MOST_REQUESTS,
    MOST_SEED,
    MOST_TOKENS,
    MOST_WIDTH,
)
from mtpc.lab.options.paths import file_to_write, folder_to_write
from mtpc.lab.training.choices import LearnFrom
from mtpc.lab.training.optimizers import Kind

Target = Annotated[Path, typer.Option(help="The frozen target, a Hugging Face folder (Llama, Qwen2, MiMo).")]
Data = Annotated[Path, typer.Option(help="Conversations of the target, as `mtpc distill` writes them.")]
Out = Annotated[Path, typer.Option(callback=folder_to_write, help="The drafter directory that is written.")]
Epochs = Annotated[int, typer.Option(min=1, max=10_000, help="Passes over the conversations.")]
BatchSize = Annotated[int, typer.Option(min=1, max=MOST_WIDTH, help="Conversations of average length in an update.")]
LearningRate = Annotated[
    float, typer.Option(min=LEAST_RATE, max=MOST_RATE, help="Peak rate: warm-up, then a cosine to zero.")
]
Warmup = Annotated[float, typer.Option(min=0, max=0.99, help="Share of the updates that the rate rises in.")]
WeightDecay = Annotated[float, typer.Option(min=0, max=10, help="Of the matrices.")]
Optimizer = Annotated[
    Kind, typer.Option(help="'adamw' (the paper's), or 'muon', which from scratch needs fewer updates.")
]
Learnt = Annotated[LearnFrom, typer.Option(help="'answers', or 'all': the questions too, where the target wrote them.")]
HeadRows = Annotated[
    int,
    typer.Option(
        min=0,
        max=MOST_WIDTH,
        help="Train on logits of this many frequent tokens and a random quarter as many others, which stand for "
        "the rest: some four times less work at 8192. 0: on all.",
    ),
]
Starts = Annotated[
    float,
    typer.Option(
        min=0.001,
        max=1,
        help="Share of an answer's positions that an update learns from, a run of neighbours drawn at random.",
    ),
]
Context = Annotated[int, typer.Option(min=3, max=MOST_TOKENS, help="Tokens of a conversation that are read, at most.")]
MicroBatch = Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Conversations that are computed at once.")]
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
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the order of the conversations.")]
