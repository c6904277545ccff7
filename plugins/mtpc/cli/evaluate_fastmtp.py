"""`mtpc evaluate fastmtp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate_fastmtp(
    drafters: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Drafter directories of one target.")],
    target: Annotated[Path, typer.Option(help="The target they were trained for.")],
    data: Annotated[Path, typer.Option(help="Conversations, as `mtpc distill` writes them; held-out ones are used.")],
    num_drafts: Annotated[int | None, typer.Option(help="Drafts in each step [default: as trained].")] = None,
    questions: Annotated[int, typer.Option(help="Held-out questions of each kind.")] = 16,
    length: Annotated[int, typer.Option(help="Tokens of each answer, at most.")] = 128,
    loop_questions: Annotated[int, typer.Option(help="Of these, the ones decoded step by step as well.")] = 2,
    temperatures: Annotated[str, typer.Option(help="Sampling temperatures, with commas; 0 is greedy.")] = "0,1",
    out: Annotated[Path | None, typer.Option(help="Write all rates as JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the target's sampling.")] = 0,
) -> None:
    """Expected acceptance of MTP layers (FastMTP) on held-out questions, without an engine.

    The target answers held-out questions; the acceptance of speculative decoding along its answers is then computed in
    closed form, by kind of question. The real loop, drafting with its own keys and values and verified step by step,
    runs on a few of them beside it.

    Example: mtpc evaluate fastmtp runs/smollm2-fastmtp runs/vanilla --target runs/smollm2 --data runs/distilled
    """
    import json

    from rich.console import Console

    from mtpc import provenance
    from mtpc.cli.acceptance_table import acceptance_table
    from mtpc.cli.numbers import numbers
    from mtpc.distill.conversations import read_conversations
    from mtpc.fastmtp.directory import load_layer
    from mtpc.fastmtp.evaluation import evaluate_kinds
    from mtpc.targets.frozen import FrozenTarget

    heldout = [each for each in read_conversations(data) if each.heldout]
    frozen = FrozenTarget(target)
    results = evaluate_kinds(
        frozen,
        heldout,
        {folder.name: load_layer(folder, frozen.facts) for folder in drafters},
        num_drafts=num_drafts,
        questions=questions,
        length=length,
        loop_questions=loop_questions,
        temperatures=numbers(temperatures, float, "--temperatures"),
        end=frozen.end,
        seed=seed,
    )
    if out is not None:
        out.write_text(json.dumps({"results": results, "provenance": provenance.collect(seed=seed)}, indent=2) + "\n")
    Console().print(acceptance_table(results))
