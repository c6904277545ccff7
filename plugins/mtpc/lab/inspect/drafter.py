"""What a drafter checkpoint is, for `mtpc inspect`: strictly loaded, then counted, part by part."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mtpc.files import provenance
from mtpc.files.json_file import is_there
from mtpc.lab.servers.speculation import speculative_arguments, speculative_config
from mtpc.methods.drafter import Drafter, load_drafter
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.table import CopyTable
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.settings import OWN_FILE

WEIGHT_BYTES = 2  # bfloat16, the type in which drafters ship
ACTIVATION_BYTES = 4  # float32, the type in which windows compute


@dataclass(frozen=True)
class Inspection:
    """Facts of a drafter checkpoint that loads."""

    folder: Path
    num_drafts: int  # that it is served with, unless the user says otherwise
    facts: dict[str, str]
    parameters: dict[str, dict[str, int]]  # of each part, "serial" and "window", by its modules
    reads: tuple[str, ...]  # what one draft reads
    provenance: dict[str, Any]

    @property
    def total(self) -> int:
        """Parameters of both parts."""
        return sum(sum(counts.values()) for counts in self.parameters.values())

    def vllm_arguments(self) -> str:
        """VLLM's arguments that serve this drafter with as many drafts, for a shell."""
        return shlex.join(["--speculative-config", speculative_config(self.folder, self.num_drafts)])

    def sglang_arguments(self) -> str:
        """SGLang's arguments, likewise; where nothing else is said it drafts as many."""
        return shlex.join(speculative_arguments(self.folder))


def inspect_drafter(folder: Path) -> Inspection:
    """Load a drafter checkpoint as an engine would and count what is in it.

    Errors: `MTPCError` with what is wrong with it (see `mtpc.methods.drafter.load_drafter`), or with what it brings
    beside its weights: a draft vocabulary, chances of copying.
    """
    drafter = load_drafter(folder)
    own, languages = folder / OWN_FILE, {}
    if drafter.autoregressive is not None and is_there(own):
        ranked = read_rankings(own, drafter.config.vocab_size).languages
        languages = {OWN_FILE: ", ".join(f"{name} ({len(of.tokens):,} tokens)" for name, of in ranked.items())}
    CopyTable.of(folder)
    parts = {
        name: part
        for name, part in (("autoregressive", drafter.autoregressive), ("parallel", drafter.parallel))
        if part is not None
    }
    parameters = {name: parameters_of(part) for name, part in parts.items()}
    config = drafter.config
    return Inspection(
        folder=folder,
        num_drafts=config.num_drafts,
        facts={
            "family": f"{drafter.method.name}: {drafter.method.summary}",
            **drafter.method.facts(drafter),
            "target": f"hidden size {config.hidden_size}, vocabulary {config.vocab_size}",
            **languages,
        },
        parameters=parameters,
        reads=describe_reads(drafter, parameters),
        provenance=provenance.read(folder),
    )


def describe_reads(drafter: Drafter, parameters: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """What one draft reads: the autoregressive part in each of its steps, the parallel part once."""
    if not drafter.config.own_drafts:
        return ("nothing but the request's own text, whatever the batch size",)
    reads = []
    if "autoregressive" in parameters:
        weights = mib(weight_bytes(parameters["autoregressive"]))
        reads.append(f"{weights} of weights in bfloat16 for each step, whatever the batch size")
        if drafter.config.autoregressive is not None and drafter.config.autoregressive.own_vocabulary is None:
            reads.append("in each step the target's output head as well, or its rows of a draft vocabulary")
    if drafter.parallel is not None:
        weights = mib(weight_bytes(parameters["parallel"]))
        once = ", once after the last step" if "autoregressive" in parameters else ""
        reads.append(f"{weights} of weights in bfloat16{once}, whatever the batch size")
        reads.append(f"{mib(leaf_bytes(drafter.parallel))} of leaf distributions in float32, for each request")
    return tuple(reads)


def parameters_of(part: nn.Module) -> dict[str, int]:
    """Parameters of each module of a part; where it holds one module and nothing else, of the modules of that."""
    counts = _by_module(part)
    only = dict(part.named_children()).get(next(iter(counts))) if len(counts) == 1 else None
    return (_by_module(only) if only is not None else {}) or counts


def _by_module(module: nn.Module) -> dict[str, int]:
    """Those of its children that have any; parameters of its own by their names."""
    counts = {name: sum(p.numel() for p in child.parameters()) for name, child in module.named_children()}
    counts |= {name: p.numel() for name, p in module.named_parameters(recurse=False)}
    return {name: count for name, count in counts.items() if count}


def weight_bytes(parameters: Mapping[str, int]) -> int:
    """Weights that one draft reads, or one step of it, in bytes: all of them, once for the whole batch."""
    return WEIGHT_BYTES * sum(parameters.values())


def leaf_bytes(parallel: ParallelPart) -> int:
    """Leaf distributions [n, R, V] that one draft of one request computes and reads, in bytes."""
    return ACTIVATION_BYTES * math.prod(parallel.leaf_shape)


def mib(size: int) -> str:
    """A number of bytes in MiB."""
    return f"{size / 2**20:.2f} MiB"
