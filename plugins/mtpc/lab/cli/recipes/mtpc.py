"""`mtpc train mtpc`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtpc.lab.cli import training_options as options
from mtpc.lab.options.names import NameList, file_name
from mtpc.lab.options.numbers import (
    MOST_DRAFTS,
    MOST_PROMPTS,
    MOST_WIDTH,
    Bounds,
    NumberList,
)
from mtpc.lab.options.paths import folder_to_write, model_folder
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import CircuitSettings


@with_settings
def train(
    target: Annotated[
        Path, typer.Option(callback=model_folder, help="Target of the drafters: a folder or a Hugging Face id.")
    ],
    corpus: Annotated[Path, typer.Option(help="Corpus folder that `mtpc corpus` wrote.")] = Path("corpus"),
    out: Annotated[
        Path,
        typer.Option(callback=folder_to_write, help="Folder for the checkpoints, as OUT/PREFIX-CIRCUIT-nWINDOW."),
    ] = Path("runs"),
    prefix: Annotated[
        str, typer.Option(callback=file_name, help="First part of the names of the checkpoints.")
    ] = "mtpc",
    circuits: Annotated[
        Sequence[str],
        typer.Option(
            metavar="ff,cp,hmm,btree",
            parser=NameList(("ff", "cp", "hmm", "btree")),
            help="Circuits to train, one drafter each: ff independent, cp mixture, hmm chain, btree binary tree.",
        ),
    ] = ("btree",),
    windows: Annotated[
        Sequence[int],
        typer.Option(
            metavar="8,16,...",
            parser=NumberList(Bounds(2, MOST_DRAFTS)),
            help="Windows n to train, one drafter each; a drafter drafts n - 1 tokens.",
        ),
    ] = (8,),
    rank: Annotated[int, typer.Option(min=1, max=4096, help="Mixture components per position; ff always has 1.")] = 16,
    leaves: Annotated[
        Literal["shared", "table"],
        typer.Option(help="Unembedding of the components: 'shared' by all, or a 'table' for each as in MTPC."),
    ] = "shared",
    leaf_features: Annotated[int, typer.Option(min=1, max=MOST_WIDTH, help="Width m of the shared unembedding.")] = 128,
    component_features: Annotated[
        int, typer.Option(min=1, max=MOST_WIDTH, help="Contextual features k per component.")
    ] = 32,
    sum_features: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_WIDTH, help="Features that the mixture weights are computed from; 0 is the hidden state."
        ),
    ] = 32,
    trunk_size: Annotated[
        int, typer.Option(min=0, max=MOST_WIDTH, help="Width of the residual layer before the circuit; 0 is none.")
    ] = 768,
    token_input: Annotated[
        bool,
        typer.Option(
            "--token-input", help="Feed the target's own token to the residual layer; the circuit starts after it."
        ),
    ] = False,
    *,
    settings: CircuitSettings,
    prompts: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_PROMPTS, help="Held-out prompts per category to evaluate on; 0 skips the evaluation."
        ),
    ] = 64,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
) -> None:
    """Train circuits that draft a window of tokens in one pass (MTPC, arXiv 2511.11346).

    Several circuits and windows train on the same batches, so that they share the target's passes and can be compared.
    The provenance.json of each checkpoint holds the expected acceptance rates on held-out text that `mtpc evaluate`
    prints.

    Examples:
    ```
    mtpc train mtpc --target weights/byte-target --circuits btree --windows 8

    # Train four drafters, and compare them.
    mtpc train mtpc --target runs/byte-target --circuits cp,hmm --windows 8,16
    ```
    """
    from mtpc.circuits import allowed_rank
    from mtpc.files.config_model import validated
    from mtpc.lab.cli.train_and_score import train_and_score
    from mtpc.lab.evaluation.prompts import corpus_prompts
    from mtpc.lab.targets.frozen import FrozenTarget, default_device, training_dtype
    from mtpc.lab.text.corpus import Corpus
    from mtpc.lab.training.recipes.mtpc_recipe import CircuitRecipe
    from mtpc.methods.mtpc import MTPCConfig

    text, device = Corpus(corpus), default_device()
    text.check_target(target)
    frozen = FrozenTarget(target, device=device, dtype=training_dtype(device))
    configs = {
        f"{prefix}-{circuit}-n{window}": validated(
            MTPCConfig,
            {
                "circuit": circuit,
                "window": window,
                "rank": allowed_rank(circuit, rank),
                "hidden_size": frozen.facts.hidden_size,
                "vocab_size": frozen.facts.vocab_size,
                "leaves": leaves,
                "leaf_features": leaf_features,
                "component_features": component_features,
                "sum_features": sum_features,
                "trunk_size": trunk_size,
                "token_input": token_input,
            },
            f"the drafter of --circuits {circuit} and --windows {window}",
        )
        for circuit in circuits
        for window in windows
    }
    recipe = CircuitRecipe(frozen, text, configs, settings)
    heldout = corpus_prompts(text, prompts) if prompts else None
    train_and_score(recipe, target, lambda name: out / name, {}, heldout, resume, minutes)
