"""What a drafter directory is, for `mtpc inspect`: strictly loaded, then counted."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtpc import provenance
from mtpc.drafter import DrafterConfig, load_drafter

WEIGHT_BYTES = 2  # bfloat16, the type in which drafters ship
ACTIVATION_BYTES = 4  # float32, the type in which circuits compute


@dataclass(frozen=True)
class Inspection:
    """Facts of a drafter directory that loads."""

    folder: Path
    config: DrafterConfig
    parameters: dict[str, int]  # by part of the head: trunk, leaves, sums
    provenance: dict[str, Any]

    @property
    def max_drafts(self) -> int:
        """Tokens that one draft can hold."""
        return self.config.window - 1

    @property
    def weight_bytes(self) -> int:
        """Weights that one draft reads, in bytes: all of them, once for the whole batch."""
        return WEIGHT_BYTES * sum(self.parameters.values())

    @property
    def leaf_bytes(self) -> int:
        """Leaf distributions [n, R, V] that one draft of one request computes and reads, in bytes."""
        return ACTIVATION_BYTES * self.config.circuit_window * self.config.rank * self.config.vocab_size

    def speculative_config(self) -> str:
        """The value of vLLM's ``--speculative-config`` that serves this drafter at its full length."""
        return speculative_config(self.folder, self.max_drafts)


def speculative_config(folder: Path, num_drafts: int) -> str:
    """vLLM's ``--speculative-config`` for a drafter directory, as JSON."""
    values = {
        "method": "eagle",
        "model": str(folder),
        "num_speculative_tokens": num_drafts,
        "draft_sample_method": "probabilistic",
    }
    return json.dumps(values, separators=(",", ":"))


def sglang_arguments(folder: Path) -> str:
    """SGLang's arguments for a drafter directory, at its full length."""
    return f"--speculative-algorithm MTPC --speculative-draft-model-path {shlex.quote(str(folder))}"


def inspect_drafter(folder: Path) -> Inspection:
    """Load a drafter directory as an engine would and count what is in it.

    Errors: `MTPCError` with what is wrong with it (see `mtpc.drafter.load_drafter`).
    """
    drafter = load_drafter(folder)
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in drafter.head.named_children()}
    return Inspection(
        folder=folder,
        config=drafter.config,
        parameters={name: count for name, count in counts.items() if count},
        provenance=provenance.read(folder),
    )
