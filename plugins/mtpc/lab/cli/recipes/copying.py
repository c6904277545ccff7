"""`mtpc train copying`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_PROMPTS, MOST_SEED, MOST_TOKENS, TEMPERATURE
from mtpc.lab.options.paths import folder_to_write, model_folder


def train(
    target: Annotated[Path, typer.Option(callback=model_folder, help="The target: a folder or a Hugging Face id.")],
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="The drafter checkpoint that is written.")],
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='JSON Lines with the field "text" or "user": the target writes on after each, and it is counted how '
            "often its text goes on as it did before. None: chances that were counted with SmolLM2-135M-Instruct."
        ),
    ] = None,
    num_drafts: Annotated[int, typer.Option(min=1, max=MOST_DRAFTS, help="Drafts K of a step, at most.")] = 10,
    count: Annotated[int, typer.Option(min=1, max=MOST_PROMPTS, help="Prompts of each kind.")] = 60,
    length: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens after each prompt, at most.")] = 128,
    longest: Annotated[int, typer.Option(min=1, max=256, help="Match that is told from longer ones.")] = 16,
    temperature: Annotated[
        list[float] | None,
        typer.Option(parser=TEMPERATURE, help="Of as many texts each; may be given again. [default: 0, 0.8]"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of what is sampled.")] = 0,
) -> None:
    """Make a drafter that copies what the request's own text went on with before, and has no trained part.

    It is lossless at every temperature, needs no memory on the device, and helps where answers repeat: summaries,
    extraction, code, edits. The directory's `copying.json` says how likely it is that a text goes on as before, by the
    number of tokens that match; a trained drafter that copies as well reads that file in its own directory.

    Examples:
    mtpc train copying --target runs/smollm2 --out runs/copying

    mtpc train copying --target runs/smollm2 --prompts questions.jsonl --out runs/copying
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
