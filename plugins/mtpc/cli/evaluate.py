"""`mtpc evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def acceptance_table(results: dict[str, dict[str, Any]]) -> Table:
    """Acceptance lengths: a row for each kind of text and temperature, a column for each drafter."""
    from rich.table import Table

    table = Table(title="expected acceptance length on held-out text (tokens per step)")
    table.add_column("text, temperature")
    for name in results:
        table.add_column(name, justify="right", overflow="fold")
    for column in dict.fromkeys(column for rates in results.values() for column in rates):
        found = (rates.get(column) for rates in results.values())
        table.add_row(column, *("-" if one is None else f"{one['acceptance_length']:.3f}" for one in found))
    return table


def evaluate(
    drafters: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Drafter directories of one target.")],
    target: Annotated[Path, typer.Option(help="The target they were trained for.")],
    corpus: Annotated[Path, typer.Option(help="Corpus folder with the held-out text.")] = Path("corpus"),
    prompts: Annotated[int, typer.Option(help="Held-out prompts of each kind.")] = 64,
    length: Annotated[int, typer.Option(help="Tokens that the target writes after each prompt.")] = 128,
    out: Annotated[Path | None, typer.Option(help="Write all rates as JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the target's sampling.")] = 0,
) -> None:
    """Expected acceptance on held-out text, without an engine.

    The target continues held-out prompts, sampling at temperatures 1 and 0.5 and greedily; the acceptance of
    speculative decoding along what it wrote is then computed in closed form. 'no evidence' leaves out the exact
    conditioning on the target's own token, where that is the circuit's work.

    Example: mtpc evaluate weights/byte-mtpc-hmm-n8 --target weights/byte-target
    """
    import json

    from rich.console import Console

    from mtpc import provenance
    from mtpc.data.corpus import Corpus
    from mtpc.drafter import load_drafter
    from mtpc.evaluation.heldout import evaluate_kinds
    from mtpc.targets.frozen import FrozenTarget

    frozen = FrozenTarget(target)
    loaded = {folder.name: load_drafter(folder, frozen.facts) for folder in drafters}
    results = evaluate_kinds(frozen, Corpus(corpus), loaded, prompts=prompts, length=length, seed=seed)
    if out is not None:
        out.write_text(json.dumps({"results": results, "provenance": provenance.collect(seed=seed)}, indent=2) + "\n")
    Console().print(acceptance_table(results))
