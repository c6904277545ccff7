"""What a drafter directory is, for `mtpc inspect`: strictly loaded, then counted."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mtpc import provenance
from mtpc.drafter import DrafterConfig, load_drafter
from mtpc.fastmtp.config import FastMTPConfig, describes_a_drafter
from mtpc.fastmtp.directory import load_layer

WEIGHT_BYTES = 2  # bfloat16, the type in which drafters ship
ACTIVATION_BYTES = 4  # float32, the type in which circuits compute


@dataclass(frozen=True)
class Inspection:
    """Facts of a drafter directory that loads."""

    folder: Path
    algorithm: str  # its name in SGLang
    num_drafts: int  # that it is served with, unless the user says otherwise
    facts: dict[str, str]
    parameters: dict[str, int]  # by part of the module
    reads: tuple[str, ...]  # what one draft reads
    provenance: dict[str, Any]

    def speculative_config(self) -> str:
        """The value of vLLM's ``--speculative-config`` that serves this drafter at its full length."""
        return speculative_config(self.folder, self.num_drafts)

    def sglang_arguments(self) -> str:
        """SGLang's arguments for this drafter at its full length."""
        folder = shlex.quote(str(self.folder))
        return f"--speculative-algorithm {self.algorithm} --speculative-draft-model-path {folder}"


def speculative_config(folder: Path, num_drafts: int) -> str:
    """vLLM's ``--speculative-config`` for a drafter directory, as JSON."""
    values = {
        "method": "eagle",
        "model": str(folder),
        "num_speculative_tokens": num_drafts,
        "draft_sample_method": "probabilistic",
    }
    return json.dumps(values, separators=(",", ":"))


def inspect_drafter(folder: Path) -> Inspection:
    """Load a drafter directory as an engine would and count what is in it.

    Errors: `MTPCError` with what is wrong with it (see `mtpc.drafter.load_drafter`, `mtpc.fastmtp.load_layer`).
    """
    return _mtp_layer(folder) if describes_a_drafter(folder) else _circuit(folder)


def _circuit(folder: Path) -> Inspection:
    drafter = load_drafter(folder)
    config, counts = drafter.config, parameters_of(drafter.head)
    return Inspection(
        folder=folder,
        algorithm="MTPC",
        num_drafts=drafter.max_drafts,
        facts={
            "circuit": config.circuit,
            "window n": f"{config.window} tokens: the target's own next token and {drafter.max_drafts} drafts",
            "target's own token": "an input of the trunk" if config.token_input else "evidence of the circuit",
            "rank R": str(config.rank),
            "leaves": config.leaves,
            "target": target_of(config),
        },
        parameters=counts,
        reads=(
            f"{mib(weight_bytes(counts))} of weights in bfloat16, whatever the batch size",
            f"{mib(leaf_bytes(config))} of leaf distributions in float32, for each request",
        ),
        provenance=provenance.read(folder),
    )


def _mtp_layer(folder: Path) -> Inspection:
    layer = load_layer(folder)
    config, counts = layer.config, parameters_of(layer)
    return Inspection(
        folder=folder,
        algorithm="FASTMTP",
        num_drafts=config.num_drafts,
        facts={
            "MTP layer": f"of kind {config.layer}, applied once for each draft",
            "steps K": f"trained for {config.num_drafts}; more can be drafted",
            "target": target_of(config),
        },
        parameters=counts,
        reads=(
            f"{mib(weight_bytes(counts))} of weights in bfloat16 for each step, whatever the batch size",
            "in each step the target's output head as well, or its rows of a draft vocabulary",
        ),
        provenance=provenance.read(folder),
    )


def target_of(config: DrafterConfig | FastMTPConfig) -> str:
    """What a target must be like."""
    return f"hidden size {config.hidden_size}, vocabulary {config.vocab_size}"


def parameters_of(module: nn.Module) -> dict[str, int]:
    """Parameters of each part of a module that has any."""
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in module.named_children()}
    return {name: count for name, count in counts.items() if count}


def weight_bytes(parameters: dict[str, int]) -> int:
    """Weights that one draft reads, or one step of it, in bytes: all of them, once for the whole batch."""
    return WEIGHT_BYTES * sum(parameters.values())


def leaf_bytes(config: DrafterConfig) -> int:
    """Leaf distributions [n, R, V] that one draft of one request computes and reads, in bytes."""
    return ACTIVATION_BYTES * config.circuit_window * config.rank * config.vocab_size


def mib(size: int) -> str:
    """A number of bytes in MiB."""
    return f"{size / 2**20:.2f} MiB"
