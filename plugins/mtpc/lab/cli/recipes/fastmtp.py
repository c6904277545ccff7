"""`mtpc train fastmtp` and `mtpc convert fastmtp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.cli import method_options as options
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import model_folder
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import FastMTPSettings


@with_settings
def train(
    target: options.Target,
    data: options.Data,
    out: options.Out,
    settings: FastMTPSettings,
    states: options.States = None,
    start: Annotated[
        Path | None,
        typer.Option(callback=model_folder, help="Start from this drafter [default: from the target's last layer]."),
    ] = None,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
    questions: options.Questions = 16,
) -> None:
    r"""Train one MTP layer that drafts K tokens by applying itself K times (FastMTP, arXiv 2509.18362).

    The target stays frozen, and its hidden states are computed during training. Embedding and output head are the
    target's. The loss is the cross-entropy of each draft step, weighted by powers of beta.

    The defaults are those of FastMTP, except that 1024 tokens of a conversation are read. Unlike in FastMTP's own
    training, a draft step attends to what it attends to in an engine. FastMTP starts from a layer that was trained with
    its target. Without one, use a larger learning rate and a smaller batch, as in the example.

    The checkpoint's provenance.json holds the acceptance rates on held-out questions that `mtpc evaluate` prints.

    Examples:
    ```
    mtpc train fastmtp --target runs/smollm2 --data runs/distilled \
        --out runs/fastmtp --loss kl --optimizer muon \
        --learning-rate 5e-3 --batch 4
    ```
    """
    from mtpc.lab.cli.train_and_score import check_outputs, prepare_training, train_and_score
    from mtpc.lab.training.recipes.fastmtp_recipe import FastMTPRecipe
    from mtpc.methods.drafter import load_drafter

    check_outputs([out], resume)
    given = prepare_training(target, data, states, questions, [] if start is None else [start])
    first = None if start is None else load_drafter(start, given.target.facts)
    recipe = FastMTPRecipe(given.target, given.conversations, settings, start=first, states=given.states)
    train_and_score(recipe, lambda _: out, given.facts, given.prompts, resume, minutes)


def convert(
    source: options.Published,
    folder: options.Converted,
    num_drafts: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_DRAFTS,
            help="Draft tokens per decoding step, K [default: as trained; 1 if the checkpoint does not state it].",
        ),
    ] = None,
) -> None:
    """Convert the MTP layer of a FastMTP or MiMo checkpoint (TencentBAC/FastMTP, XiaomiMiMo/MiMo-7B-RL).

    Only the tensors of that layer are read. Embedding and output head stay the target's, which is MiMo-7B-RL in both
    cases. A checkpoint with another layout or unknown entries is rejected.

    The drafter reads the target's hidden state after the final norm, as FastMTP was trained. In Xiaomi's code for vLLM,
    MiMo's own layer reads the state before that norm. Its converted drafter is lossless but may accept less.

    Examples:
    ```
    mtpc convert fastmtp downloads/FastMTP runs/mimo-fastmtp

    mtpc convert fastmtp downloads/MiMo-7B-RL runs/mimo-vanilla --num-drafts 3
    ```
    """
    from mtpc.lab.convert.fastmtp import convert_fastmtp

    drafter = convert_fastmtp(source, folder, num_drafts)
    config = drafter.config
    parameters = sum(weight.numel() for weight in drafter.parameters())
    typer.echo(
        f"{folder}: an MTP layer of {parameters:,} parameters for a target with hidden size {config.hidden_size} and "
        f"vocabulary {config.vocab_size}, {config.num_drafts} draft tokens per step"
    )
