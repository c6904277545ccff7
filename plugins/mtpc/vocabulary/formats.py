"""Reads draft vocabularies: this project's file, FR-Spec's ``freq_*.pt``, EAGLE-3's d2t and t2d, plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.json_file import check_file, read_any
from mtpc.vocabulary.files import RankingsFile, TokenCounts, TokenList
from mtpc.vocabulary.ranking import Ranking, Rankings

IDS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def read_rankings(path: Path, vocab_size: int) -> Rankings:
    """Read a draft vocabulary file in any supported format and check it against the target's vocabulary.

    Args:
        path: The file: ``.json``, ``.safetensors`` or a pickle of torch.
        vocab_size: V of the target.

    Returns:
        The rankings by language; a format without languages has one ranking, named "any".

    Raises:
        MTPCError: The file cannot be read, has no supported format, or does not fit the target.
    """
    content = _read(path)
    always: tuple[int, ...] = ()
    if isinstance(content, dict) and "languages" in content:
        own = validated(RankingsFile, content, str(path))
        if own.vocab_size != vocab_size:
            raise MTPCError(f"{path} ranks a vocabulary of {own.vocab_size} tokens, but the target's has {vocab_size}.")
        languages = {
            name: Ranking(tuple(entry.tokens), None if entry.counts is None else tuple(entry.counts), entry.ranked)
            for name, entry in own.languages.items()
        }
        always = tuple(own.always)
    else:
        languages = {"any": _ranking(content, vocab_size, path)}
    try:
        return Rankings(vocab_size, languages, always)
    except MTPCError as error:
        raise MTPCError(f"{path}: {error}") from None


def _read(path: Path) -> Any:
    check_file(path)
    if path.suffix == ".json":
        return read_any(path)
    try:
        return load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # torch raises exceptions of any type for damaged and foreign files
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise MTPCError(f"{path} cannot be read as a draft vocabulary: {reason.rstrip('.')}.") from None


def _ranking(content: Any, vocab_size: int, path: Path) -> Ranking:
    """Return the tokens of a foreign format."""
    if isinstance(content, Tensor):
        content = _row(content, vocab_size, IDS, str(path)).tolist()
    if isinstance(content, list):  # FR-Spec: ids, most frequent first
        return Ranking(tuple(validated(TokenList, content, str(path)).root))
    if not isinstance(content, dict):
        raise MTPCError(f"{path} holds a {type(content).__name__}, which is not a draft vocabulary.")
    tensors = {str(name).rsplit(".", 1)[-1]: value for name, value in content.items() if isinstance(value, Tensor)}
    if "d2t" in tensors:  # EAGLE-3: token i of the draft is token i + d2t[i] of the target
        offsets = _row(tensors["d2t"], vocab_size, IDS, f"d2t of {path}")
        return Ranking(tuple((torch.arange(len(offsets)) + offsets).tolist()), ranked=False)
    if "t2d" in tensors:  # EAGLE-3: whether each token of the target can be drafted
        chosen = _row(tensors["t2d"], vocab_size, (*IDS, torch.bool), f"t2d of {path}")
        if len(chosen) != vocab_size:
            raise MTPCError(f"t2d of {path} has {len(chosen)} entries, but the target's vocabulary has {vocab_size}.")
        return Ranking(tuple(chosen.nonzero()[:, 0].tolist()), ranked=False)
    if tensors or not content:
        raise MTPCError(f"{path} holds no list of tokens, no counts by token id, no d2t and no t2d.")
    return _by_count(validated(TokenCounts, list(content.items()), str(path)))


def _row(tensor: Tensor, most: int, kinds: Sequence[torch.dtype], name: str) -> Tensor:
    """Return a tensor as int64 [n]; n is limited because a view may claim any size without using memory."""
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
    if not dense or tensor.dtype not in kinds or tensor.ndim != 1 or not 0 < len(tensor) <= most:
        found = f"{list(tensor.shape)} of {tensor.dtype} ({tensor.layout})"
        raise MTPCError(f"{name} must be a row of 1 to {most} integers, but is {found}.")
    return tensor.to(torch.int64)


def _by_count(counted: TokenCounts) -> Ranking:
    """Return the tokens that occurred, most frequent first."""
    counts = sorted((-count, int(token)) for token, count in counted.root if count)
    return Ranking(tuple(token for _, token in counts), tuple(-count for count, _ in counts))
