"""`mtpc evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtpc.errors import MTPCError
from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_PROMPTS, MOST_SEED, MOST_TOKENS, TEMPERATURE, Bounds, NumberList
from mtpc.lab.options.paths import file_to_write, model_folder, model_folders

if TYPE_CHECKING:
    from mtpc.lab.evaluation.prompts import Prompts


def evaluate(
    drafters: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", callback=model_folders, help="Drafters of one target: folders or Hugging Face ids."
        ),
    ],
    target: Annotated[
        Path, typer.Option(callback=model_folder, help="The target they were trained for: a folder or an id.")
    ],
    corpus: Annotated[Path | None, typer.Option(help="Go on with the held-out text of this corpus folder.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Answer the held-out questions of these conversations (`mtpc distill`).")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help='Go on with a JSON Lines file: the fields "kind", and "text" or "user".')
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_PROMPTS, help="Prompts of each kind [default: 64 of a corpus, 16 questions]."),
    ] = None,
    length: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens that the target writes after each prompt, at most.")
    ] = 128,
    num_drafts: Annotated[
        int | None, typer.Option(min=1, max=MOST_DRAFTS, help="Drafts in each step, and of a tree's path [as trained].")
    ] = None,
    loop: Annotated[
        int, typer.Option(min=0, max=MOST_PROMPTS, help="Prompts of each kind that are decoded step by step as well.")
    ] = 2,
    tree: Annotated[
        Sequence[int] | None,
        typer.Option(metavar="7,15,...", parser=NumberList(Bounds(1, 4096)), help="Draft trees of so many nodes as well."),
    ] = None,
    borrow: Annotated[
        Sequence[int] | None,
        typer.Option(
            metavar="8,...",
            parser=NumberList(Bounds(1, 4096)),
            help="And so many nodes more, borrowed from longer paths (full tree attention).",
        ),
    ] = None,
    max_children: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            help="Children of a node of a tree, at most, and prefixes of each level that an autoregressive part goes on from "
            "[default: 10 there].",
        ),
    ] = None,
    temperatures: Annotated[
        Sequence[float],
        typer.Option(metavar="1,0,...", parser=NumberList(TEMPERATURE), help="Of the sampling; 0 is greedy."),
    ] = (1, 0.5, 0),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    out: Annotated[Path | None, typer.Option(callback=file_to_write, help="Write all rates as JSON.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the target's sampling.")] = 0,
) -> None:
    """Expected acceptance of drafters of any draft method on held-out text, without an engine.

    The target goes on with held-out prompts; the acceptance of speculative decoding along what it wrote is then
    computed in closed form, with the target's whole output head (an engine may draft from fewer tokens of it: a draft
    vocabulary). 'no evidence' leaves out the exact conditioning on the target's own token, where that is a
    circuit's work; 'real loop' are a few of the prompts, decoded step by step. Chains are sampled and verified by
    rejection sampling; trees hold the most probable continuations and are verified by target-only sampling.

    Examples:
    mtpc evaluate weights/byte-mtpc-hmm-n8 --target weights/byte-target --corpus corpus --tree 7,15,31

    mtpc evaluate runs/fastmtp runs/vanilla --target runs/smollm2 --data runs/distilled

    mtpc evaluate weights/smollm2-fastmtp --target runs/smollm2 --data runs/distilled --tree 16 --borrow 8
    --max-children 4

    mtpc evaluate weights/smollm2-fastmtp --target runs/smollm2 --prompts benchmarks/chat_prompts.jsonl
    """
    import json

    from mtpc.files import provenance
    from mtpc.lab.console import console
    from mtpc.lab.evaluation.evaluate import Plan, acceptance_table, evaluate_folders
    from mtpc.lab.evaluation.trees import Trees

    if sum(source is not None for source in (corpus, data, prompts)) != 1:
        raise MTPCError("say what the target goes on with: one of --corpus, --data and --prompts.")
    plan = Plan(
        temperatures=tuple(temperatures),
        length=length,
        num_drafts=num_drafts,
        loop=loop,
        trees=Trees(tuple(tree or ()), tuple(borrow or ()), max_children),
        seed=seed,
    )
    results = evaluate_folders(target, drafters, _prompts(corpus, data, prompts, target, count), plan)
    table = acceptance_table(results)
    if markdown:
        typer.echo(table.to_markdown())
    else:
        console().print(table.to_rich())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"results": results, "provenance": provenance.collect(seed=seed)}, indent=2) + "\n")


def _prompts(corpus: Path | None, data: Path | None, file: Path | None, target: Path, count: int | None) -> Prompts:
    """The one source that is named."""
    from mtpc.lab.evaluation.prompts import PROMPTS, QUESTIONS, corpus_prompts, heldout_questions, prompts_of_file
    from mtpc.lab.text.conversations import read_conversations
    from mtpc.lab.text.corpus import Corpus

    if corpus is not None:
        text = Corpus(corpus)
        text.check_target(target)
        return corpus_prompts(text, count or PROMPTS)
    if data is not None:
        return heldout_questions(list(read_conversations(data)), count or QUESTIONS)
    assert file is not None
    return prompts_of_file(file, target, count or QUESTIONS)
