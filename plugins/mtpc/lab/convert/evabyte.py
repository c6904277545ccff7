"""Conversion of EvaByte's multi-byte heads into a drafter checkpoint (`mtpc convert evabyte`).

``lm_head.weight`` of EvaByte is [num_pred_heads x V, d]: linear heads over the state after the final norm, one below
the other. Head i is the distribution of the i-th next byte, from the next one on (OpenEvaByte/evabyte, evabyte_hf).
They are an FF circuit with a table of leaves (MTPC paper, equation FF), conditioned on the byte that the target has
sampled.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from mtpc.draft import MAX_DRAFTS
from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.json_file import read_json
from mtpc.files.weights import check_tensor, check_type
from mtpc.lab.convert.checkpoint import Checkpoint
from mtpc.lab.output_paths import check_new_folder
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig

CONFIG, OUTPUT, LEAVES = "config.json", "lm_head.weight", "head.leaves.weight"


class EvaByteConfig(BaseModel):
    """Keys that are read of EvaByte's config.json; the others are the target's."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model_type: Literal["evabyte"]
    hidden_size: Annotated[int, Field(ge=1)]
    vocab_size: Annotated[int, Field(ge=2)]
    num_pred_heads: Annotated[int, Field(ge=2, le=MAX_DRAFTS)]
    tie_word_embeddings: Literal[False] = False


def convert_evabyte(source: Path, folder: Path) -> Drafter:
    """Convert the heads of a whole EvaByte model, of which nothing else is read.

    Args:
        source: Folder of the model.
        folder: Drafter checkpoint to write. It must be new or empty.

    Returns:
        The drafter that was written.

    Raises:
        MTPCError: ``folder`` is not empty, or the model is another one or has one head only.
    """
    check_new_folder(folder)
    published = validated(EvaByteConfig, read_json(source / CONFIG), str(source / CONFIG))
    heads, vocab, size = published.num_pred_heads, published.vocab_size, published.hidden_size
    config = validated(
        MTPCConfig,
        {
            "circuit": "ff",
            "window": heads,
            "rank": 1,
            "hidden_size": size,
            "vocab_size": vocab,
            "leaves": "table",
            "sum_features": 0,
        },
        str(source / CONFIG),
    )
    checkpoint = Checkpoint(source)
    if OUTPUT not in checkpoint.files:
        raise MTPCError(f"{source} does not hold the tensor {OUTPUT!r}, which has all heads of EvaByte.")
    for name in sorted(checkpoint.files):
        if name.startswith("lm_head.") and name != OUTPUT:
            raise MTPCError(f"{source}: the tensor {name!r} is unknown to EvaByte, whose heads have no bias.")
    path = source / checkpoint.files[OUTPUT]
    output = checkpoint.read([OUTPUT])[OUTPUT]
    if output.shape != (heads * vocab, size):
        raise MTPCError(
            f"{path}: {OUTPUT!r} has shape {list(output.shape)}, but {CONFIG} requires {[heads * vocab, size]} for "
            f"{heads} heads of {vocab} tokens."
        )
    check_type(path, OUTPUT, output)
    weights = {LEAVES: output.view(heads, 1, vocab, size).float()}
    expected = Drafter.planned(MTPC(), config, str(source / CONFIG)).tensors()
    check_tensor(path, LEAVES, weights[LEAVES], expected[LEAVES])
    drafter = Drafter(MTPC(), config)
    drafter.load_tensors(weights)
    drafter.requires_grad_(False).eval()
    facts = {
        "source": source.name,
        "source_config_sha256": hashlib.sha256((source / CONFIG).read_bytes()).hexdigest(),
        "source_heads_sha256": hashlib.sha256(weights[LEAVES].numpy().tobytes()).hexdigest(),
        "target": source.name,
    }
    save_drafter(folder, drafter, facts)
    return drafter
