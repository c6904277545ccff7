"""`mtpc evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtpc.errors import MTPCError
from mtpc.lab.options.numbers import (
    MOST_DRAFTS,
    MOST_NODES,
    MOST_PROMPTS,
    MOST_SEED,
    MOST_TOKENS,
    TEMPERATURE,
    Bounds,
    NumberList,
)
from mtpc.lab.options.paths import file_to_write, model_folder, model_folders

if TYPE_CHECKING:
    from mtpc.lab.evaluation.prompts import Prompts


def evaluate(
    drafters: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            callback=model_folders,
            help="Drafter checkpoints for the same target: folders or Hugging Face ids.",
        ),
    ],
    target: Annotated[
        Path,
        typer.Option(
            callback=model_folder, help="Target that the drafters were trained for: a folder or a Hugging Face id."
        ),
    ],
    corpus: Annotated[
        Path | None, typer.Option(help="Use the held-out text of this corpus folder (`mtpc corpus`) as prompts.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Use the held-out questions of these conversations (`mtpc distill`).")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help='Use a JSON Lines file of prompts with the fields "kind", and "text" or "user".'),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_PROMPTS, help="Prompts per category [default: 64 of a corpus, otherwise 16 questions]."
        ),
    ] = None,
    length: Annotated[
        int,
        typer.Option(
            min=2,
            max=MOST_TOKENS,
            help="Largest number of tokens that the target generates per prompt, within its positions.",
        ),
    ] = 128,
    num_drafts: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_DRAFTS, help="Draft tokens per decoding step, and depth of trees [default: as trained]."
        ),
    ] = None,
    loop: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_PROMPTS, help="Prompts per category that are also decoded with the reference loop."
        ),
    ] = 2,
    tree: Annotated[
        Sequence[int] | None,
        typer.Option(
            metavar="7,15,...",
            parser=NumberList(Bounds(1, MOST_NODES)),
            help="Evaluate draft trees of these sizes as well.",
        ),
    ] = None,
    borrow: Annotated[
        Sequence[int] | None,
        typer.Option(
            metavar="8,...",
            parser=NumberList(Bounds(1, MOST_NODES)),
            help="Add these numbers of borrowed nodes to each tree (full tree attention of Gumiho).",
        ),
    ] = None,
    max_children: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_NODES,
            help="Largest number of children per tree node, and of prefixes per level that an autoregressive part "
            "continues [default: 10 prefixes].",
        ),
    ] = None,
    temperatures: Annotated[
        Sequence[float],
        typer.Option(
            metavar="1,0,...", parser=NumberList(TEMPERATURE), help="Sampling temperatures to evaluate; 0 means greedy."
        ),
    ] = (1, 0.5, 0),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    out: Annotated[
        Path | None, typer.Option(callback=file_to_write, help="Write all acceptance rates to this JSON file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the target's sampling.")] = 0,
) -> None:
    """Compute the expected acceptance length of drafters on held-out text, without an engine.

    The target continues held-out prompts. Along its output the expected acceptance of speculative decoding is computed
    exactly, with all tokens of the vocabulary; an engine may draft from a smaller draft vocabulary. Give one of
    --corpus, --data and --prompts.

    Chains are sampled and verified by rejection sampling. Trees hold the most probable continuations and are verified
    by target-only sampling. Rows with 'no evidence' do not condition a circuit on the target's own token. Rows with
    'real loop' decode a few prompts with the reference loop, as a check.

    Examples:
    ```
    # Evaluate a drafter on the held-out questions of its training data.
    mtpc evaluate runs/fastmtp --target runs/smollm2 --data runs/distilled

    # Compare two drafters on your own prompts.
    mtpc evaluate runs/fastmtp runs/new --target runs/smollm2 --prompts my.jsonl

    # Add draft trees of 7, 15 and 31 nodes.
    mtpc evaluate runs/new --target runs/smollm2 --data data --tree 7,15,31

    # Evaluate a byte-level drafter.
    mtpc evaluate runs/mtpc-btree-n8 --target runs/byte-target --corpus corpus
    ```
    """
    import json

    from rich.console import Console

    from mtpc.files import provenance
    from mtpc.lab.console import console
    from mtpc.lab.evaluation.evaluate import EvaluationPlan, acceptance_table, evaluate_folders
    from mtpc.lab.evaluation.trees import TreeSettings
    from mtpc.lab.targets.folder import check_folder

    if sum(source is not None for source in (corpus, data, prompts)) != 1:
        raise MTPCError("give exactly one of --corpus, --data and --prompts: the text that the target continues.")
    check_folder(target)
    plan = EvaluationPlan(
        temperatures=tuple(temperatures),
        length=length,
        num_drafts=num_drafts,
        loop=loop,
        trees=TreeSettings(tuple(tree or ()), tuple(borrow or ()), max_children),
        seed=seed,
    )
    on_terminal = Console(stderr=True)  # keeps the table alone on standard output
    results = evaluate_folders(target, drafters, _prompts(corpus, data, prompts, target, count), plan, on_terminal)
    table = acceptance_table(results)
    if markdown:
        typer.echo(table.to_markdown())
    else:
        console().print(table.to_rich())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"results": results, "provenance": provenance.collect(seed=seed)}, indent=2) + "\n")


def _prompts(corpus: Path | None, data: Path | None, file: Path | None, target: Path, count: int | None) -> Prompts:
    """Read the prompts of the one source that was given."""
    from mtpc.lab.evaluation.prompts import PROMPTS, QUESTIONS, corpus_prompts, heldout_questions, prompts_of_file
    from mtpc.lab.text.conversations import read_conversations
    from mtpc.lab.text.corpus import Corpus

    if corpus is not None:
        text = Corpus(corpus)
        text.check_target(target)
        return corpus_prompts(text, target, count or PROMPTS)
    if data is not None:
        return heldout_questions(list(read_conversations(data)), count or QUESTIONS)
    assert file is not None
    return prompts_of_file(file, target, count or QUESTIONS)
