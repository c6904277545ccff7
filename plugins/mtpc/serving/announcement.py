"""The start-up line in an engine's log that describes the drafter."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mtpc.methods.contract import DraftMethod


class Shares(NamedTuple):
    """How many draft tokens come from which part.

    Attributes:
        autoregressive: Tokens of the autoregressive part.
        parallel: Tokens of the parallel part.
        copied: Tokens of prompt lookup beyond the drafter's.
        text: Tokens of the text part.
    """

    autoregressive: int
    parallel: int
    copied: int = 0
    text: int = 0


def startup_line(folder: Path, method: DraftMethod, shares: Shares, vocabularies: str, *more: str) -> str:
    """Return the start-up line: checkpoint, draft method, draft tokens, draft vocabularies and size of the weights.

    Args:
        folder: The drafter checkpoint.
        method: Its draft method.
        shares: Draft tokens by part.
        vocabularies: Description of the draft vocabularies.
        *more: Further facts for the end of the line.
    """
    named = {
        "by its autoregressive part": shares.autoregressive,
        "by its parallel part": shares.parallel,
        "by prompt lookup": shares.copied,
        "by its text part": shares.text,
    }
    parts = ", ".join(f"{count} {what}" for what, count in named.items() if count)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    facts = [
        f"{folder} is {method.title} and drafts up to {sum(shares)} tokens",
        parts,
        vocabularies,
        f"weights {size / 1e6:.1f} MB",
        *more,
    ]
    return f"{'; '.join(facts)}."
