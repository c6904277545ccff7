"""The line that a converter of circuits prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


def circuit_line(folder: Path, drafter: Drafter) -> str:
    """Describe a converted circuit in one line.

    Args:
        folder: The checkpoint that was written.
        drafter: The drafter in it.
    """
    config = drafter.config
    parameters = sum(weight.numel() for weight in drafter.parameters())
    kind = drafter.method.facts(drafter)
    return (
        f"{folder}: a circuit {kind['circuit']} of rank {kind['rank R']} and {parameters:,} parameters for a target "
        f"with hidden size {config.hidden_size} and vocabulary {config.vocab_size}, {config.num_drafts} draft tokens "
        "per step"
    )
