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
        Path, typer.Option(callback=model_folder, help="The frozen target: a folder or a Hugging Face id.")
    ],
    corpus: Annotated[Path, typer.Option(help="Corpus folder, as `mtpc corpus` writes it.")] = Path("corpus"),
    out: Annotated[
        Path,
        typer.Option(callback=folder_to_write, help="Each drafter goes into OUT/PREFIX-CIRCUIT-nWINDOW."),
    ] = Path("runs"),
    prefix: Annotated[str, typer.Option(callback=file_name, help="First part of the drafters' names.")] = "mtpc",
    circuits: Annotated[
        Sequence[str],
        typer.Option(metavar="ff,cp,hmm,btree", parser=NameList(("ff", "cp", "hmm", "btree")), help="Circuits to train."),
    ] = ("btree",),
    windows: Annotated[
        Sequence[int],
        typer.Option(
            metavar="8,16,...",
            parser=NumberList(Bounds(2, MOST_DRAFTS)),
            help="Windows n to train; a drafter drafts n - 1 tokens.",
        ),
    ] = (8,),
    rank: Annotated[int, typer.Option(min=1, max=4096, help="Components per position (FF always has 1).")] = 16,
    leaves: Annotated[
        Literal["shared", "table"], typer.Option(help="One unembedding for all, or the paper's.")
    ] = "shared",
    leaf_features: Annotated[
        int, typer.Option(min=1, max=MOST_WIDTH, help="Features m that shared leaves unembed.")
    ] = 128,
    component_features: Annotated[
        int, typer.Option(min=1, max=MOST_WIDTH, help="Contextual features k of a component.")
    ] = 32,
    sum_features: Annotated[
        int, typer.Option(min=0, max=MOST_WIDTH, help="Features behind the sum weights; 0: the hidden state.")
    ] = 32,
    trunk_size: Annotated[
        int, typer.Option(min=0, max=MOST_WIDTH, help="Width of the residual layer in front; 0: none.")
    ] = 768,
    token_input: Annotated[
        bool,
        typer.Option("--token-input", help="Let the trunk read the target's own token; the circuit starts after it."),
    ] = False,
    *,
    settings: CircuitSettings,
    prompts: Annotated[
        int, typer.Option(min=0, max=MOST_PROMPTS, help="Held-out prompts of each kind to score on; 0: none.")
    ] = 64,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
) -> None:
    """Train circuits over a window of tokens, drafted in one shot (MTPC).

    Several circuits and windows train side by side on the same batches, so that one pass through the target serves
    them all and their table is fair. Each ends as a drafter checkpoint with its expected acceptance on held-out text in
    provenance.json: the figures that `mtpc evaluate` prints of it.

    Examples:
    mtpc train mtpc --target weights/byte-target --circuits btree --windows 8 --out runs

    mtpc train mtpc --target weights/byte-target --circuits ff,cp,hmm,btree --windows 8,16 --loss kl
    --resume heads.state
    """
    from mtpc.circuits import allowed_rank
    from mtpc.files.config_model import declared
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
        f"{prefix}-{circuit}-n{window}": declared(
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
            "the drafter that is asked for",
        )
        for circuit in circuits
        for window in windows
    }
    recipe = CircuitRecipe(frozen, text, configs, settings)
    heldout = corpus_prompts(text, prompts) if prompts else None
    train_and_score(recipe, target, lambda name: out / name, {}, heldout, resume, minutes)
