"""Drafter checkpoint of prompt lookup alone, and the measurement of its copy table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from mtpc.files.config_model import validated
from mtpc.lab.console import console
from mtpc.lab.evaluation.prompts import Prompts, check_prompts
from mtpc.lab.evaluation.texts import GeneratedText, generate_texts
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.recipes.copying_counts import copy_probabilities, count_continuations
from mtpc.methods.copying import PromptLookupConfig, PromptLookupOnly
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.prompt_lookup.table import FILE


def measure_copy_table(
    target: FrozenTarget, prompts: Prompts, length: int, temperatures: Sequence[float], longest: int, seed: int
) -> dict[str, Any]:
    """Measure a `CopyTable` on output that the target generates, and print it.

    Args:
        target: Frozen target.
        prompts: Prompts to generate after.
        length: Longest output per prompt, in tokens.
        temperatures: Sampling temperatures. 0 is greedy.
        longest: Longest match that is counted separately, in tokens.
        seed: Seed of the sampling.

    Returns:
        Content of the table's file.

    Raises:
        MTPCError: There are no prompts, or they belong to another target.
    """
    check_prompts(prompts, target.facts.vocab_size)
    texts: list[GeneratedText] = []
    for temperature in temperatures:
        by_kind = generate_texts(target, prompts, length, temperature, seed)
        texts += [text for of_kind in by_kind.values() for text in of_kind]
    counts = count_continuations(track(texts, "texts"), longest)
    rows = [[str(i), str(times), f"{copied / times:.3f}" if times else "-"] for i, (copied, times) in enumerate(counts)]
    console().print(
        Table("Tokens that prompt lookup proposes correctly", ["matching tokens", "count", "correct"], rows).to_rich()
    )
    return {"chances": copy_probabilities(counts), "counts": counts.tolist()}


def write_copying_drafter(folder: Path, target: FrozenTarget, num_drafts: int, copy_table: dict[str, Any]) -> None:
    """Write a drafter checkpoint of prompt lookup alone.

    Args:
        folder: Folder to write.
        target: Frozen target of the drafter.
        num_drafts: Draft tokens K per step.
        copy_table: Content of the `CopyTable`, see `measure_copy_table`.

    Raises:
        MTPCError: ``num_drafts`` is out of range.
    """
    sizes = {"hidden_size": target.facts.hidden_size, "vocab_size": target.facts.vocab_size}
    config = validated(PromptLookupConfig, {**sizes, "num_drafts": num_drafts}, "the requested drafter")
    save_drafter(folder, Drafter(PromptLookupOnly(), config), {"target": target.folder.name})
    (folder / FILE).write_text(json.dumps(copy_table, indent=2) + "\n")
