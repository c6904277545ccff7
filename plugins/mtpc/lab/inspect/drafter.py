"""Facts of a drafter checkpoint for `mtpc inspect`: loaded strictly, parameters counted by part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.config_model import validated
from mtpc.files.json_file import is_there
from mtpc.files.target import Target, TargetKeys
from mtpc.lab.evaluation.evaluate import check_vocabulary
from mtpc.lab.servers.speculation import serve_commands
from mtpc.lab.targets.folder import check_folder, stated_sizes
from mtpc.methods.drafter import Drafter, drafts_through_target_head, load_drafter
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.table import CopyTable
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.settings import CHECKPOINT_FILE

SIZES = ("hidden_size", "vocab_size")  # of the target
WEIGHT_BYTES = 2  # bfloat16, the dtype of saved weights
ACTIVATION_BYTES = 4  # float32, the dtype in which parallel parts compute
TARGET = Path("TARGET")  # stands for the target's folder in the printed commands
TARGET_HEAD = "the target's output head, or its rows of a draft vocabulary"


@dataclass(frozen=True)
class Inspection:
    """Facts of a drafter checkpoint.

    Attributes:
        folder: Folder of the checkpoint.
        target: Folder of the target that the drafter was checked with; None: it was not.
        num_drafts: Default number of draft tokens K.
        facts: Method, sizes and vocabularies, by label.
        parameters: Number of parameters by part ("autoregressive", "parallel") and module.
        reads: Data that one draft reads from memory, as sentences.
        provenance: Content of provenance.json.
    """

    folder: Path
    target: Path | None
    num_drafts: int
    facts: dict[str, str]
    parameters: dict[str, dict[str, int]]
    reads: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def total(self) -> int:
        """Number of parameters of both parts."""
        return sum(sum(counts.values()) for counts in self.parameters.values())

    def commands(self) -> list[str]:
        """Return the commands that serve this drafter, quoted for a shell: vLLM's, and SGLang's."""
        return serve_commands(self.target or TARGET, self.folder, self.num_drafts)


def inspect_drafter(folder: Path, target: Path | None = None) -> Inspection:
    """Load a drafter checkpoint as an engine does, and collect its facts.

    Args:
        folder: Folder of the checkpoint.
        target: Folder of the target that the drafter must fit; None: it is not checked.

    Returns:
        Facts of the checkpoint.

    Raises:
        MTPCError: The checkpoint cannot be loaded (see `mtpc.methods.drafter.load_drafter`), its draft vocabulary or
            copy table is damaged, or the target has other sizes or another vocabulary.
    """
    drafter = load_drafter(folder, None if target is None else sizes_of(target))
    if target is not None:
        check_vocabulary(str(folder), drafter, target)
    vocabulary, languages = folder / CHECKPOINT_FILE, {}
    if drafts_through_target_head(drafter.method, drafter.config) and is_there(vocabulary):
        rankings = read_rankings(vocabulary, drafter.config.vocab_size).languages
        sizes = [f"{name} ({len(ranking.tokens):,} tokens)" for name, ranking in rankings.items()]
        languages = {CHECKPOINT_FILE: ", ".join(sizes)}
    CopyTable.of(folder)
    parts = {
        name: part
        for name, part in (("autoregressive", drafter.autoregressive), ("parallel", drafter.parallel))
        if part is not None
    }
    parameters = {name: parameters_of(part) for name, part in parts.items()}
    config = drafter.config
    stated = f"hidden size {config.hidden_size}, vocabulary {config.vocab_size}"
    return Inspection(
        folder=folder,
        target=target,
        num_drafts=config.num_drafts,
        facts={
            "method": f"{drafter.method.name}: {drafter.method.summary}",
            **drafter.method.facts(drafter),
            **text_settings(drafter),
            "target": stated if target is None else f"{stated}, as {target}",
            **languages,
        },
        parameters=parameters,
        reads=describe_reads(drafter, parameters),
        provenance=provenance.read(folder),
    )


def sizes_of(target: Path) -> Target:
    """Return the sizes of a target, with its number of layers if config.json states it.

    Args:
        target: Folder of the target.

    Raises:
        MTPCError: The folder holds no model, or its config.json has no sizes.
    """
    sizes = stated_sizes(target)
    if sizes is None:
        raise MTPCError(f"{target / 'config.json'} has no hidden_size and vocab_size, the sizes of the target.")
    values = check_folder(target)
    inner = values.get("text_config")  # multimodal models
    keys = validated(TargetKeys, inner if isinstance(inner, dict) else values, str(target / "config.json"))
    return replace(sizes, layers=keys.num_hidden_layers)


def text_settings(drafter: Drafter) -> dict[str, str]:
    """Return the settings of a draft model in one line; nothing for a drafter that reads the target's states."""
    if not drafter.method.reads_text:
        return {}
    values = drafter.config.model_dump().items()
    numbers = [f"{key} {value}" for key, value in values if isinstance(value, (int, float)) and key not in SIZES]
    return {"settings": ", ".join(numbers)}


def describe_reads(drafter: Drafter, parameters: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Describe what one draft reads from memory."""
    if not drafter.config.own_drafts:
        return ("only the text of the request",)
    reads, through_target = [], drafts_through_target_head(drafter.method, drafter.config)
    if "autoregressive" in parameters:
        weights = mib(weight_bytes(parameters["autoregressive"]))
        reads.append(f"{weights} of bfloat16 weights per draft step, for any batch size")
        if through_target:
            reads.append(f"{TARGET_HEAD}, per draft step")
    if drafter.parallel is not None:
        weights = mib(weight_bytes(parameters["parallel"]))
        once = ", once after the last draft step" if "autoregressive" in parameters else ""
        reads.append(f"{weights} of bfloat16 weights{once}, for any batch size")
        if through_target and drafter.parallel.reads_head:
            reads.append(f"{TARGET_HEAD}{once}, for any batch size")
        reads.append(f"{mib(leaf_bytes(drafter.parallel))} of float32 leaf distributions per request")
    return tuple(reads)


def parameters_of(part: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each module of a part; a single module is split into its modules."""
    counts = _by_module(part)
    only = dict(part.named_children()).get(next(iter(counts))) if len(counts) == 1 else None
    return (_by_module(only) if only is not None else {}) or counts


def _by_module(module: nn.Module) -> dict[str, int]:
    """Return the numbers of parameters of a module's children, and of its parameters by name."""
    counts = {name: sum(p.numel() for p in child.parameters()) for name, child in module.named_children()}
    counts |= {name: p.numel() for name, p in module.named_parameters(recurse=False)}
    return {name: count for name, count in counts.items() if count}


def weight_bytes(parameters: Mapping[str, int]) -> int:
    """Return the bytes of weights that one draft or draft step reads, once for the whole batch."""
    return WEIGHT_BYTES * sum(parameters.values())


def leaf_bytes(parallel: ParallelPart) -> int:
    """Return the bytes of leaf distributions [n, R, V] that one draft of one request computes and reads."""
    return ACTIVATION_BYTES * math.prod(parallel.leaf_shape)


def mib(size: int) -> str:
    """Return a number of bytes as MiB."""
    return f"{size / 2**20:.2f} MiB"
