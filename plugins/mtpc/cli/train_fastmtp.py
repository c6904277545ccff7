"""`mtpc train fastmtp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train_fastmtp(
    target: Annotated[Path, typer.Option(help="The frozen target, a Hugging Face folder (Llama, Qwen2, MiMo).")],
    data: Annotated[Path, typer.Option(help="Conversations of the target, as `mtpc distill` writes them.")],
    out: Annotated[Path, typer.Option(help="The drafter directory that is written.")],
    steps: Annotated[int, typer.Option(help="Recursive steps K; 1 is plain MTP.")] = 3,
    beta: Annotated[float, typer.Option(help="The loss of step k weighs beta^(k-1).")] = 0.6,
    epochs: Annotated[int, typer.Option(help="Passes over the conversations.")] = 3,
    batch: Annotated[int, typer.Option(help="Conversations of average length in an update.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Peak rate: warm-up, then a cosine to zero.")] = 5e-5,
    warmup: Annotated[float, typer.Option(help="Share of the updates that the rate rises in.")] = 0.05,
    weight_decay: Annotated[float, typer.Option(help="Of the matrices.")] = 0.1,
    optimizer: Annotated[
        str, typer.Option(help="'adamw' (the paper's), or 'muon', which from scratch needs fewer updates.")
    ] = "adamw",
    loss: Annotated[
        str,
        typer.Option(help="'ce' (the paper's), 'kl' to the target's distribution, or 'lk', -log of what it accepts."),
    ] = "ce",
    learn_from: Annotated[
        str, typer.Option(help="'answers', or 'all': the questions too, where the target wrote them.")
    ] = "answers",
    head_rows: Annotated[
        int,
        typer.Option(
            help="Train on logits of this many frequent tokens and a random quarter as many others, which stand for "
            "the rest: some four times less work at 8192. 0: on all."
        ),
    ] = 0,
    attention: Annotated[
        str, typer.Option(help="What a step attends to: 'served', as in an engine, or 'paper', as in its training.")
    ] = "served",
    context: Annotated[int, typer.Option(help="Tokens of a conversation that are read, at most.")] = 1024,
    micro_batch: Annotated[int, typer.Option(help="Conversations that are computed at once.")] = 1,
    keep_states: Annotated[
        bool, typer.Option(help="Hold the target's states in memory, so that later epochs need not compute them.")
    ] = False,
    start: Annotated[
        Path | None, typer.Option(help="A drafter directory to go on from; none: the target's own last layer.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="State file: written on the way, continued from if there.")
    ] = None,
    questions: Annotated[int, typer.Option(help="Held-out questions of each kind that are scored; 0: none.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the order of the conversations and of the evaluation.")] = 0,
) -> None:
    """Train an MTP layer that drafts by applying itself K times (FastMTP).

    The target stays frozen; its hidden states are computed on the way. The loss is the paper's: the cross-entropy of
    each step, weighed by powers of beta. The defaults are the paper's, which goes on from a layer that was trained with
    its target: starting from nothing, take a larger rate and a smaller batch. The layer ends as a drafter directory,
    its acceptance on held-out questions in provenance.json; embedding and output head are the target's.

    Examples:

    mtpc train fastmtp --target runs/smollm2 --data runs/distilled --out runs/fastmtp --loss kl --optimizer muon
    --learning-rate 5e-3 --batch 4

    mtpc train fastmtp --target runs/smollm2 --data runs/distilled --out runs/vanilla --steps 1 --resume vanilla.state
    """
    import json

    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from mtpc.cli.acceptance_table import acceptance_table
    from mtpc.distill.conversations import file_digest, read_conversations
    from mtpc.fastmtp.directory import load_layer, save_layer
    from mtpc.fastmtp.evaluation import evaluate_kinds
    from mtpc.fastmtp.trainer import TrainConfig, Trainer
    from mtpc.targets.frozen import FrozenTarget

    config = TrainConfig(
        steps=steps,
        beta=beta,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        weight_decay=weight_decay,
        optimizer=optimizer,  # type: ignore[arg-type]  # checked there, like the next three
        attention=attention,  # type: ignore[arg-type]
        loss=loss,  # type: ignore[arg-type]
        learn_from=learn_from,  # type: ignore[arg-type]
        head_rows=head_rows,
        context=context,
        micro_batch=micro_batch,
        seed=seed,
    )
    conversations = list(read_conversations(data))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    frozen = FrozenTarget(target, device=device, dtype=torch.bfloat16)
    first = None if start is None else load_layer(start, frozen.facts)
    learnt = [each for each in conversations if not each.heldout]
    trainer = Trainer(frozen, learnt, config, start=first, resume=resume, keep_states=keep_states)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("MTP layer", total=trainer.updates, completed=trainer.update)

        def show(update: int, losses: list[float]) -> None:
            progress.update(bar, completed=update)
            if update % 20 == 0 or update == trainer.updates:
                console.print(json.dumps({"update": update, "losses": [round(value, 4) for value in losses]}))

        trainer.run(show)
    facts = {"target": target.name, "data_sha256": file_digest(data), "training": trainer.facts()}
    save_layer(out, trainer.layer, facts)
    heldout = [each for each in conversations if each.heldout]
    if questions and heldout:
        exact = FrozenTarget(target, device=device)  # float32
        saved = load_layer(out, exact.facts, device=device)
        results = evaluate_kinds(exact, heldout, {out.name: saved}, questions=questions, end=exact.end, seed=seed)
        save_layer(out, trainer.layer, {**facts, "heldout_acceptance": results[out.name]})
        console.print(acceptance_table(results))
