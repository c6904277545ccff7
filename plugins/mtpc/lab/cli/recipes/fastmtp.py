"""`mtpc train fastmtp` and `mtpc convert fastmtp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.cli import training_options as options
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import folder_to_write, model_folder, published_folder
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
        typer.Option(callback=model_folder, help="A drafter to go on from; none: the target's own last layer."),
    ] = None,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
    questions: options.Questions = 16,
) -> None:
    """Train an MTP layer that drafts by applying itself K times (FastMTP).

    The target stays frozen; its hidden states are computed on the way. The loss is the paper's: the cross-entropy of
    each step, weighed by powers of beta. The defaults are the paper's, which goes on from a layer that was trained with
    its target: starting from nothing, take a larger rate and a smaller batch. Two are not: a step attends to what it
    attends to in an engine, and of a conversation 1024 tokens are read. The layer ends as a drafter checkpoint, its
    acceptance on held-out questions in provenance.json, as `mtpc evaluate` prints it; embedding and output head are the
    target's.

    Examples:
    mtpc train fastmtp --target runs/smollm2 --data runs/distilled --out runs/fastmtp --loss kl --optimizer muon
    --learning-rate 5e-3 --batch 4

    mtpc train fastmtp --target runs/smollm2 --data runs/distilled --out runs/vanilla --num-drafts 1
    --resume vanilla.state
    """
    from mtpc.lab.cli.train_and_score import train_and_score
    from mtpc.lab.evaluation.prompts import heldout_questions
    from mtpc.lab.targets.frozen import FrozenTarget, default_device, training_dtype
    from mtpc.lab.text.conversations import file_digest, read_conversations
    from mtpc.lab.training.hidden_states import HiddenStateCache
    from mtpc.lab.training.recipes.fastmtp_recipe import FastMTPRecipe
    from mtpc.methods.drafter import load_drafter

    conversations = list(read_conversations(data))
    device = default_device()
    frozen = FrozenTarget(target, device=device, dtype=training_dtype(device))
    kept = None if states is None else HiddenStateCache(states, frozen)
    first = None if start is None else load_drafter(start, frozen.facts)
    learnt = [conversation for conversation in conversations if not conversation.heldout]
    recipe = FastMTPRecipe(frozen, learnt, settings, start=first, states=kept)
    prompts = heldout_questions(conversations, questions)
    heldout = prompts if any(prompts.by_kind.values()) else None
    train_and_score(recipe, target, lambda _: out, {"data_sha256": file_digest(data)}, heldout, resume, minutes)


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
    num_drafts: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_DRAFTS, help="Drafts K [default: as trained; 1 where the checkpoint does not say]."
        ),
    ] = None,
) -> None:
    """Take the MTP layer out of a FastMTP or MiMo checkpoint (TencentBAC/FastMTP, XiaomiMiMo/MiMo-7B-RL).

    Only the tensors of that layer are read, from one safetensors file or from several with an index; embedding and
    output head stay the target's, which is MiMo-7B-RL in both cases. A checkpoint of another layout, or one that
    holds anything unknown, is refused with one sentence.

    A drafter starts from the target's state after its final norm, as FastMTP was trained. In Xiaomi's code for vLLM,
    Xiaomi's own layer starts from the state before it: converted, it drafts without loss, but may be right less often.

    Examples:
    mtpc convert fastmtp downloads/FastMTP runs/mimo-fastmtp

    mtpc convert fastmtp downloads/MiMo-7B-RL runs/mimo-vanilla --num-drafts 3
    """
    from mtpc.lab.convert.fastmtp import convert_fastmtp

    drafter = convert_fastmtp(source, folder, num_drafts)
    config = drafter.config
    parameters = sum(weight.numel() for weight in drafter.parameters())
    typer.echo(
        f"{folder}: an MTP layer of {parameters:,} parameters for a target of hidden size {config.hidden_size} and "
        f"vocabulary {config.vocab_size}, {config.num_drafts} drafts a step"
    )
