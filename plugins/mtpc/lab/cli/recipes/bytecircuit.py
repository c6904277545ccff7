"""`mtpc train bytecircuit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.cli import method_options as options
from mtpc.lab.options.names import NameList
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import folder_to_write
from mtpc.lab.options.settings import with_settings
from mtpc.lab.training.settings import ByteCircuitSettings


@with_settings
def train(
    target: options.AnyTarget,
    data: options.Data,
    out: Annotated[
        Path, typer.Option(callback=folder_to_write, help="Folder for the checkpoints, as OUT/bytecircuit-CIRCUIT.")
    ],
    circuits: Annotated[
        Sequence[str],
        typer.Option(
            metavar="ff,cp,hmm",
            parser=NameList(("ff", "cp", "hmm")),
            help="Circuits to train, one drafter each: ff independent, cp mixture, hmm chain.",
        ),
    ] = ("hmm",),
    window: Annotated[
        int,
        typer.Option(
            min=4,
            max=MOST_DRAFTS,
            help="Window n in symbols: the bytes of the target's next token and of the draft tokens, and the end of "
            "each. Tokens of n bytes or more are never drafted.",
        ),
    ] = 32,
    rank: Annotated[int, typer.Option(min=1, max=4096, help="Mixture components per position; ff always has 1.")] = 16,
    *,
    sizes: options.HeadSizes,
    settings: ByteCircuitSettings,
    states: options.States = None,
    resume: options.Resume = None,
    minutes: options.Minutes = None,
    questions: options.Questions = 16,
) -> None:
    r"""Train circuits over bytes for a target with subword tokens (MTPC, arXiv 2511.11346).

    The circuit spells the next tokens, byte by byte, so it needs no output head over the target's vocabulary. The loss
    is the negative log-likelihood of the bytes and ends of the next K tokens. The target stays frozen.

    Several circuits train on the same batches, so that they can be compared. The provenance.json of each checkpoint
    holds the acceptance rates on held-out questions that `mtpc evaluate` prints.

    Examples:
    ```
    mtpc train bytecircuit --target runs/smollm2 --data runs/distilled \
        --out runs/b
    ```
    """
    from mtpc.circuits import allowed_rank
    from mtpc.files.config_model import validated
    from mtpc.lab.cli.train_and_score import check_outputs, prepare_training, train_and_score
    from mtpc.lab.targets.folder import check_folder
    from mtpc.lab.text.chat_template import load_tokenizer
    from mtpc.lab.training.recipes.byte_circuit_recipe import ByteCircuitRecipe
    from mtpc.methods.bytecircuit import ByteDrafterConfig
    from mtpc.vocabulary.token_bytes import token_bytes

    folders = {f"bytecircuit-{circuit}": out / f"bytecircuit-{circuit}" for circuit in circuits}
    check_outputs(folders.values(), resume)
    check_folder(target)
    tokens = token_bytes(load_tokenizer(target))
    given = prepare_training(target, data, states, questions)
    configs = {
        f"bytecircuit-{circuit}": validated(
            ByteDrafterConfig,
            {
                "circuit": circuit,
                "window": window,
                "rank": allowed_rank(circuit, rank),
                "hidden_size": given.target.facts.hidden_size,
                "vocab_size": given.target.facts.vocab_size,
                **asdict(sizes),
                "num_drafts": settings.num_drafts,
                "text_bytes": sum(len(each or b"") for each in tokens.tokens),
                "target_tokens": tokens.digest(),
            },
            f"the drafter of --circuits {circuit}, --window {window} and --num-drafts {settings.num_drafts}",
        )
        for circuit in circuits
    }
    recipe = ByteCircuitRecipe(given.target, tokens, given.conversations, configs, settings, states=given.states)
    train_and_score(recipe, folders.__getitem__, given.facts, given.prompts, resume, minutes)
