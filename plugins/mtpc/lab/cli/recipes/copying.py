"""`mtpc train copying`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_PROMPTS, MOST_SEED, MOST_TOKENS, TEMPERATURE
from mtpc.lab.options.paths import model_folder, new_folder


def train(
    target: Annotated[
        Path, typer.Option(callback=model_folder, help="Target of the drafter: a folder or a Hugging Face id.")
    ],
    out: Annotated[Path, typer.Option(callback=new_folder, help="New folder for the drafter checkpoint.")],
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='Measure the probabilities on the target\'s outputs for this JSON Lines file of prompts ("text" or '
            '"user") [default: use those of SmolLM2-135M-Instruct].'
        ),
    ] = None,
    num_drafts: Annotated[
        int, typer.Option(min=1, max=MOST_DRAFTS, help="Largest number of draft tokens per decoding step, K.")
    ] = 10,
    count: Annotated[int, typer.Option(min=1, max=MOST_PROMPTS, help="Prompts per category of --prompts.")] = 60,
    length: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, help="Largest number of tokens to generate per prompt.")
    ] = 128,
    longest: Annotated[
        int, typer.Option(min=1, max=256, help="Match length from which longer matches count as one.")
    ] = 16,
    temperature: Annotated[
        list[float] | None,
        typer.Option(
            parser=TEMPERATURE, help="Sampling temperature to generate with; may be repeated [default: 0 and 0.8]."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the target's sampling.")] = 0,
) -> None:
    """Make a drafter that only does prompt lookup: it proposes the tokens that followed an earlier match.

    It has no trained part, needs no device memory, and is lossless at every temperature. It helps where outputs repeat
    earlier text: summaries, extraction, code, edits. Its `copying.json` holds the probability that text repeats, by the
    number of matching tokens. A trained drafter with prompt lookup reads the same file from its own checkpoint.

    Examples:
    ```
    mtpc train copying --target runs/smollm2 --out runs/copy

    # Measure the probabilities on your own prompts.
    mtpc train copying --target runs/smollm2 --out runs/copy --prompts my.jsonl
    ```
    """
    from mtpc.lab.evaluation.prompts import prompts_of_file
    from mtpc.lab.targets.frozen import FrozenTarget, default_device
    from mtpc.lab.training.recipes.copying_drafter import measure_copy_table, write_copying_drafter
    from mtpc.prompt_lookup.table import COMMON

    frozen = FrozenTarget(target, device=default_device())
    if prompts is None:
        counted = {"chances": list(COMMON)}
    else:
        asked = prompts_of_file(prompts, target, count)
        counted = measure_copy_table(
            frozen, asked, length, [0.0, 0.8] if temperature is None else temperature, longest, seed
        )
    write_copying_drafter(out, frozen, num_drafts, counted)
    typer.echo(f"written to {out}")
