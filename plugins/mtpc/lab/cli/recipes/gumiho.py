"""`mtpc train gumiho`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.cli import training_options as options
from mtpc.lab.options.names import NameList
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import folder_to_write, model_folder, published_folder
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import GumihoSettings

CIRCUITS = ("ff", "cp", "hmm", "btree", "none")


@with_settings
def train(
    target: options.Target,
    data: options.Data,
    out: Annotated[
        Path, typer.Option(callback=folder_to_write, help="Where each drafter gets a directory, OUT/gumiho-CIRCUIT.")
    ],
    start: Annotated[
        Path | None,
        typer.Option(
            callback=model_folder,
            help="Go on from the draft layers of this drafter, FastMTP's or Gumiho's of no more layers [default: the "
            "target's own last layers]; from all of it where it is the very same kind.",
        ),
    ] = None,
    circuits: Annotated[
        Sequence[str],
        typer.Option(
            metavar="ff,hmm,...",
            parser=NameList(CIRCUITS),
            help="Drafters to train: 'ff' is Gumiho's independent heads; with 'cp', 'hmm' or 'btree' the heads know of "
            "each other; 'none' has no heads, every draft is a step of the layers (EAGLE).",
        ),
    ] = ("ff",),
    layers: Annotated[int, typer.Option(min=1, max=64, help="Layers of the autoregressive part.")] = 2,
    blocks: Annotated[int, typer.Option(min=0, max=64, help="Residual layers of each head.")] = 5,
    rank: Annotated[int, typer.Option(min=2, max=256, help="Components of each position where heads are joint.")] = 4,
    normed: Annotated[
        bool, typer.Option(help="Norms around the layers and behind the heads, as those of the target; else none.")
    ] = True,
    *,
    settings: GumihoSettings,
    states: options.States = None,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
    questions: options.Questions = 16,
) -> None:
    """Train draft layers for the first drafts, and heads in parallel for those after them (Gumiho).

    The target stays frozen; its hidden states are computed on the way. The defaults are the paper's (table 5): distance
    from the target's states, and a tenth of the distance from its distributions. Several drafters train side by side on
    the same batches, so that their table is fair. Each starts from the target's own last layers and ends as a drafter
    directory, its acceptance on held-out questions in provenance.json; embedding and output head are the target's.

    Examples:
    mtpc train gumiho --target runs/smollm2 --data runs/distilled --out runs/trained

    mtpc train gumiho --target runs/smollm2 --data runs/distilled --out runs/trained --circuits ff,hmm,none
    --regression 0 --classification 1 --optimizer muon --learning-rate 3e-3 --head-rows 8192 --epochs 2
    """
    from mtpc.circuits import allowed_rank
    from mtpc.lab.cli.train_and_score import train_and_score
    from mtpc.lab.evaluation.prompts import heldout_questions
    from mtpc.lab.targets.frozen import FrozenTarget, default_device, training_dtype
    from mtpc.lab.text.conversations import file_digest, read_conversations
    from mtpc.lab.training.recipes.gumiho_recipe import GumihoRecipe, config_for
    from mtpc.lab.training.states import HiddenStates
    from mtpc.methods.drafter import load_drafter

    conversations = list(read_conversations(data))
    device = default_device()
    frozen = FrozenTarget(target, device=device, dtype=training_dtype(device))
    autoregressive = {"num_hidden_layers": layers, "normed": normed, "steps": settings.steps}
    heads = {"positions": settings.positions, "blocks": blocks}
    configs = {}
    for circuit in circuits:
        parallel = None
        if circuit != "none":
            parallel = {**heads, "circuit": circuit, "rank": allowed_rank(circuit, rank)}
        configs[f"gumiho-{circuit}"] = config_for(frozen.model.config, parallel, **autoregressive)
    learnt = [conversation for conversation in conversations if not conversation.heldout]
    kept = None if states is None else HiddenStates(states, frozen)
    first = None if start is None else load_drafter(start, frozen.facts)
    recipe = GumihoRecipe(frozen, learnt, configs, settings, start=first, states=kept)
    prompts = heldout_questions(conversations, questions)
    heldout = prompts if any(prompts.by_kind.values()) else None
    facts = {"data_sha256": file_digest(data)}
    train_and_score(recipe, target, lambda name: out / name, facts, heldout, resume, minutes)


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC", callback=published_folder, help="The published checkpoint: a folder or a Hugging Face id."
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", callback=folder_to_write, help="The drafter checkpoint that is written.")
    ],
    steps: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_DRAFTS, help="Drafts of the autoregressive part, behind which the heads were trained."
        ),
    ] = 2,
) -> None:
    """Take a published Gumiho checkpoint over (amd/Gumiho-*): two layers without outer norms, and five heads.

    Its config.json and pytorch_model.bin are read, the latter without executing anything; embedding and output head are
    the target's. A checkpoint of another layout, or one that holds anything unknown, is refused with one sentence.

    Examples:
    mtpc convert gumiho downloads/Gumiho-llama3-8b runs/llama3-gumiho
    """
    from mtpc.lab.convert.gumiho import convert_gumiho

    drafter = convert_gumiho(source, folder, steps)
    config = drafter.config
    parameters = sum(weight.numel() for weight in drafter.parameters())
    typer.echo(
        f"{folder}: draft layers and heads of {parameters:,} parameters for a target of hidden size "
        f"{config.hidden_size} and vocabulary {config.vocab_size}, {config.num_drafts} drafts a step"
    )
