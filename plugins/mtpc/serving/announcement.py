"""The one line in an engine's log that says what drafts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mtpc.methods.contract import DraftMethod


class Shares(NamedTuple):
    """How many tokens of a draft come from where.

    copied: beyond the drafter's own.
    """

    autoregressive: int
    parallel: int
    copied: int = 0


def announced(folder: Path, method: DraftMethod, shares: Shares, vocabularies: str, *more: str) -> str:
    """The line.

    vocabularies: what is drafted from.  more: what else there is to say.
    """
    named = {
        "by its autoregressive part": shares.autoregressive,
        "by its parallel part": shares.parallel,
        "copied beyond those": shares.copied,
    }
    parts = ", ".join(f"{count} {what}" for what, count in named.items() if count)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    facts = [
        f"{folder} is {method.title} and drafts up to {sum(shares[:3])} tokens",
        parts,
        vocabularies,
        f"its file of weights is of {size / 1e6:.1f} MB",
        *more,
    ]
    return f"{'; '.join(facts)}."
