"""`mtpc train gumiho`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.cli import method_options as options
from mtpc.lab.options.names import NameList
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import folder_to_write, model_folder
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import GumihoSettings

CIRCUITS = ("ff", "cp", "hmm", "btree", "none")


@with_settings
def train(
    target: options.Target,
    data: options.Data,
    out: Annotated[
        Path, typer.Option(callback=folder_to_write, help="Folder for the checkpoints, as OUT/gumiho-CIRCUIT.")
    ],
    start: Annotated[
        Path | None,
        typer.Option(
            callback=model_folder,
            help="Start from the draft layers of this FastMTP or Gumiho drafter, which may have fewer layers. Its "
            "heads are used where the configuration is the same [default: from the target's last layers].",
        ),
    ] = None,
    circuits: Annotated[
        Sequence[str],
        typer.Option(
            metavar="ff,hmm,...",
            parser=NameList(CIRCUITS),
            help="Heads to train, one drafter each: 'ff' independent as in Gumiho; 'cp', 'hmm' or 'btree' joint; "
            "'none' without heads, where layers draft every token (EAGLE).",
        ),
    ] = ("ff",),
    layers: Annotated[int, typer.Option(min=1, max=64, help="Number of draft layers.")] = 2,
    blocks: Annotated[int, typer.Option(min=0, max=64, help="Number of residual layers per head.")] = 5,
    rank: Annotated[int, typer.Option(min=2, max=256, help="Components per position of a joint circuit.")] = 4,
    normed: Annotated[
        bool, typer.Option(help="Add norms like the target's around the layers and after the heads.")
    ] = True,
    *,
    settings: GumihoSettings,
    states: options.States = None,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
    questions: options.Questions = 16,
) -> None:
    r"""Train draft layers for the first draft tokens, and parallel heads for the others (Gumiho, arXiv 2503.10135).

    The target stays frozen, and its hidden states are computed during training. Embedding and output head are the
    target's. The defaults are those of Gumiho's table 5: the loss is the distance to the target's hidden states plus a
    tenth of the distance to its distributions.

    To train on distributions only, use --regression 0 --classification 1. Several drafters (--circuits ff,hmm,none)
    train on the same batches, so that their results can be compared. The provenance.json of each checkpoint holds the
    acceptance rates on held-out questions that `mtpc evaluate` prints.

    Examples:
    ```
    mtpc train gumiho --target runs/smollm2 --data runs/distilled \
        --out runs/gumiho
    ```
    """
    from mtpc.circuits import allowed_rank
    from mtpc.lab.cli.train_and_score import check_outputs, prepare_training, train_and_score
    from mtpc.lab.training.recipes.gumiho_recipe import GumihoRecipe, config_for
    from mtpc.methods.drafter import load_drafter

    folders = {f"gumiho-{circuit}": out / f"gumiho-{circuit}" for circuit in circuits}
    check_outputs(folders.values(), resume)
    given = prepare_training(target, data, states, questions, [] if start is None else [start])
    autoregressive = {"num_hidden_layers": layers, "normed": normed, "steps": settings.steps}
    heads = {"positions": settings.positions, "blocks": blocks}
    configs = {}
    for circuit in circuits:
        parallel = None
        if circuit != "none":
            parallel = {**heads, "circuit": circuit, "rank": allowed_rank(circuit, rank)}
        configs[f"gumiho-{circuit}"] = config_for(given.target.model.config, parallel, **autoregressive)
    first = None if start is None else load_drafter(start, given.target.facts)
    recipe = GumihoRecipe(given.target, given.conversations, configs, settings, start=first, states=given.states)
    train_and_score(recipe, folders.__getitem__, given.facts, given.prompts, resume, minutes)


def convert(
    source: options.Published,
    folder: options.Converted,
    steps: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_DRAFTS,
            help="Draft steps of the autoregressive part, before the positions that the heads were trained for.",
        ),
    ] = 2,
) -> None:
    """Convert a published Gumiho checkpoint (amd/Gumiho-*): two layers without outer norms, and five heads.

    Reads config.json and pytorch_model.bin, the latter without executing code. Embedding and output head stay the
    target's. A checkpoint with another layout or unknown entries is rejected.

    Example:
    ```
    mtpc convert gumiho downloads/Gumiho-llama3-8b runs/llama3-gumiho
    ```
    """
    from mtpc.lab.convert.gumiho import convert_gumiho

    drafter = convert_gumiho(source, folder, steps)
    config = drafter.config
    parameters = sum(weight.numel() for weight in drafter.parameters())
    typer.echo(
        f"{folder}: draft layers and heads of {parameters:,} parameters for a target with hidden size "
        f"{config.hidden_size} and vocabulary {config.vocab_size}, {config.num_drafts} draft tokens per step"
    )
