"""`mtpc evaluate circuits`, which is `mtpc evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate_circuits(
    drafters: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Drafter directories of one target.")],
    target: Annotated[Path, typer.Option(help="The target they were trained for.")],
    corpus: Annotated[Path, typer.Option(help="Corpus folder with the held-out text.")] = Path("corpus"),
    prompts: Annotated[int, typer.Option(help="Held-out prompts of each kind.")] = 64,
    length: Annotated[int, typer.Option(help="Tokens that the target writes after each prompt.")] = 128,
    tree: Annotated[str | None, typer.Option(help="Draft trees as well: their numbers of nodes, with commas.")] = None,
    max_children: Annotated[int | None, typer.Option(help="Children of a node of a tree, at most.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all rates as JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the target's sampling.")] = 0,
) -> None:
    """Expected acceptance of circuit drafters (MTPC) on held-out text, without an engine.

    The target continues held-out prompts, sampling at temperatures 1 and 0.5 and greedily; the acceptance of
    speculative decoding along what it wrote is then computed in closed form. 'no evidence' leaves out the exact
    conditioning on the target's own token, where that is the circuit's work. Chains are sampled and verified by
    rejection sampling; trees hold the most probable continuations and are verified by target-only sampling.

    Examples:

    mtpc evaluate weights/byte-mtpc-hmm-n8 --target weights/byte-target

    mtpc evaluate weights/byte-mtpc-hmm-n8 --target weights/byte-target --tree 7,15,31
    """
    import json

    from rich.console import Console

    from mtpc import provenance
    from mtpc.cli.acceptance_table import acceptance_table
    from mtpc.cli.numbers import numbers
    from mtpc.data.corpus import Corpus
    from mtpc.drafter import load_drafter
    from mtpc.drafter.tree import level_widths
    from mtpc.evaluation.heldout import evaluate_kinds
    from mtpc.targets.frozen import FrozenTarget

    trees = () if tree is None else numbers(tree, int, "--tree")
    frozen = FrozenTarget(target)
    loaded = {folder.name: load_drafter(folder, frozen.facts) for folder in drafters}
    for drafter in loaded.values():
        for size in trees:
            level_widths(size, drafter.max_drafts, drafter.config.vocab_size, max_children)
    results = evaluate_kinds(
        frozen,
        Corpus(corpus),
        loaded,
        prompts=prompts,
        length=length,
        seed=seed,
        trees=trees,
        max_children=max_children,
    )
    if out is not None:
        out.write_text(json.dumps({"results": results, "provenance": provenance.collect(seed=seed)}, indent=2) + "\n")
    Console().print(acceptance_table(results))
