"""A draft model with its target's vocabulary, for the engines' own draft loops (`mtpc convert pair --method same`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mtpc.draft_model.translation import TokenizerPair
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.config_model import short_repr
from mtpc.files.json_file import is_there, read_json
from mtpc.files.weights import check_type
from mtpc.lab.convert.checkpoint import INDEX_FILE, Checkpoint
from mtpc.lab.output_paths import check_new_folder

CONFIG = "config.json"
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")  # of config.json


def draft_rows(pair: TokenizerPair, vocab_size: int) -> Tensor:
    """Find the draft model's token for each token of the target.

    Of several tokens with the same bytes, only the one of `TokenBytes.by_bytes` counts, the one that texts hold.

    Args:
        pair: The tokenizers.
        vocab_size: V of the target.

    Returns:
        int64 [V], ids of the draft model; -1 for a token that it does not have, and for an id without a token.

    Raises:
        MTPCError: The draft model would lose a token, because the target has none with these bytes.
    """
    lost = sorted(pair.own.tokens.by_bytes().keys() - pair.target.tokens.by_bytes().keys())
    if lost:
        raise MTPCError(
            f"--method is 'same', but the target's vocabulary lacks {len(lost):,} of the draft model's tokens, such as "
            f"{short_repr(lost[0])}: use --method auto."
        )
    rows = torch.full([vocab_size], -1)
    rows[pair.common[1]] = pair.common[0]
    for target, own in pair.special.items():
        rows[target] = own
    return rows


def with_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Reorder the vocabulary of an embedding, an output head or its bias.

    A token that the draft model does not have gets the mean of all others.  Its logit is then their mean logit, so it
    is never the most probable token, and its probability is at most 1/V (Jensen's inequality).

    Args:
        tensor: [V', ...] of the draft model.
        rows: int64 [V], see `draft_rows`.

    Returns:
        [V, ...], in the type of ``tensor``.
    """
    known = rows >= 0
    reordered = tensor[rows.clamp(min=0)]
    reordered[~known] = reordered[known].mean(0, dtype=torch.float32).to(tensor.dtype)
    return reordered


def write_draft_model(
    draft: Path, target: Path, tokenizer: PreTrainedTokenizerBase, rows: Tensor, out: Path, facts: dict[str, Any]
) -> None:
    """Write a draft model with the vocabulary of its target; one file of weights is in memory at a time.

    Args:
        draft: Folder of the draft model.
        target: Folder of the target.
        tokenizer: The target's.
        rows: int64 [V], see `draft_rows`.
        out: Folder to write. It must be new or empty.
        facts: Provenance to store.

    Raises:
        MTPCError: ``out`` is not empty, or the draft model's weights are damaged, or quantized where they are moved.
    """
    check_new_folder(out)
    config, theirs, checkpoint = read_json(draft / CONFIG), read_json(target / CONFIG), Checkpoint(draft)
    section, their_section = language_section(config), language_section(theirs)
    moved = vocabulary_tensors(checkpoint, section["vocab_size"])
    out.mkdir(parents=True, exist_ok=True)
    size = 0
    for file in sorted(set(checkpoint.files.values())):
        tensors = checkpoint.read(name for name, holds in checkpoint.files.items() if holds == file)
        for name in moved & tensors.keys():
            check_type(draft / file, name, tensors[name])
            tensors[name] = with_rows(tensors[name], rows)
        save_file(tensors, out / file, metadata={"format": "pt"})
        size += sum(tensor.nbytes for tensor in tensors.values())
    if is_there(draft / INDEX_FILE):
        index = {"metadata": {"total_size": size}, "weight_map": checkpoint.files}
        (out / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n")
    tokenizer.save_pretrained(out)
    provenance.write(out, **facts)
    section |= {"vocab_size": len(rows), **{key: their_section.get(key, theirs.get(key)) for key in TOKENS}}
    (out / CONFIG).write_text(json.dumps(config, indent=2) + "\n")  # the last file: without it, no folder is a model


def language_section(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of config.json with the sizes of the language model."""
    inner = config.get("text_config")  # multimodal models
    return inner if isinstance(inner, dict) else config


def vocabulary_tensors(checkpoint: Checkpoint, vocab_size: int) -> set[str]:
    """Return the names of the embedding and, unless it is tied, of the output head: all with a row for each token.

    Args:
        checkpoint: Of the draft model.
        vocab_size: Its number of tokens.

    Raises:
        MTPCError: There are more or fewer tensors of this size, or the output head has another layout.
    """
    found = {name: shape for name in checkpoint.files if (shape := checkpoint.shape(name))[:1] == [vocab_size]}
    heads = {name for name in checkpoint.files if "lm_head" in name.split(".")}
    matrices = sum(len(shape) == 2 for shape in found.values())
    if matrices not in (1, 2) or not heads <= found.keys():
        raise MTPCError(
            f"{checkpoint.folder} must hold an embedding and an output head of {vocab_size:,} rows that are not "
            f"quantized, but the tensors of this size are {', '.join(sorted(found)) or 'none'}."
        )
    return set(found)
