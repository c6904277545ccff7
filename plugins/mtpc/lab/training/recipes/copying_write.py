"""The directory of a drafter that only copies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from mtpc.files.config_model import declared
from mtpc.lab.console import console
from mtpc.lab.evaluation.prompts import Prompts, check
from mtpc.lab.evaluation.texts import Text, write_texts
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.copying_counts import chances, count
from mtpc.methods.copying import PromptLookupConfig, PromptLookupOnly
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.prompt_lookup.table import FILE


def chances_of(
    target: FrozenTarget, prompts: Prompts, length: int, temperatures: Sequence[float], longest: int, seed: int
) -> dict[str, Any]:
    """What the file of a `CopyTable` says, counted along what the target writes after prompts, and printed as a table.

    length: tokens after each prompt, at most.  longest: tokens of a match that is told from longer ones.

    Errors: `MTPCError` for prompts that are none, or another target's.
    """
    check(prompts, target.facts.vocab_size)
    texts: list[Text] = []
    for temperature in temperatures:
        written = write_texts(target, prompts, length, temperature, seed)
        texts += [text for of_kind in written.values() for text in of_kind]
    counts = count(track(texts, "texts"), longest)
    rows = [[str(i), str(times), f"{copied / times:.3f}" if times else "-"] for i, (copied, times) in enumerate(counts)]
    console().print(
        Table("How often a text went on as before", ["tokens that match", "times", "copied"], rows).to_rich()
    )
    return {"chances": chances(counts), "counts": counts.tolist()}


def write_drafter(folder: Path, target: FrozenTarget, num_drafts: int, counted: dict[str, Any]) -> None:
    """Write a drafter checkpoint; ``counted`` is what its file of a `CopyTable` says."""
    sizes = {"hidden_size": target.facts.hidden_size, "vocab_size": target.facts.vocab_size}
    config = declared(PromptLookupConfig, {**sizes, "num_drafts": num_drafts}, "the drafter that is asked for")
    save_drafter(folder, Drafter(PromptLookupOnly(), config), {"target": target.folder.name})
    (folder / FILE).write_text(json.dumps(counted, indent=2) + "\n")
