"""Reads draft vocabularies: this project's file, FR-Spec's ``freq_*.pt``, EAGLE-3's d2t and t2d, plain JSON."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.vocabulary.ranking import FORMAT_VERSION, Ranking, Rankings

OWN_KEYS = {"version", "vocab_size", "always", "languages", "provenance"}


def read_rankings(path: Path, vocab_size: int, language: str = "any") -> Rankings:
    """A file of any of the formats, checked against a vocabulary.

    language: the name for the tokens of a format that knows one language only.

    Errors: `MTPCError` with one sentence that names the file, what was found and what was expected.
    """
    if not path.is_file():
        raise MTPCError(f"{path} is missing; a draft vocabulary is a .json, .pt or .safetensors file.")
    content = _read(path)
    try:
        if isinstance(content, dict) and "languages" in content:
            return _own(content, vocab_size)
        return Rankings(vocab_size, {language: _ranking(content, vocab_size)})
    except MTPCError as error:
        raise MTPCError(f"{path}: {error}") from None


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, EOFError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MTPCError(f"{path} cannot be read as a draft vocabulary: {reason}") from None


def _own(values: dict[str, Any], vocab_size: int) -> Rankings:
    for key in OWN_KEYS ^ set(values):
        raise MTPCError(f"the key {key!r} is {'unknown' if key in values else 'missing'}.")
    if values["version"] != FORMAT_VERSION:
        raise MTPCError(f"version is {values['version']!r}, but this release reads version {FORMAT_VERSION}.")
    if values["vocab_size"] != vocab_size:
        raise MTPCError(f"it ranks a vocabulary of {values['vocab_size']} tokens, but the target's has {vocab_size}.")
    try:
        languages = {
            name: Ranking(
                tuple(entry["tokens"]),
                None if entry["counts"] is None else tuple(entry["counts"]),
                bool(entry["ranked"]),
            )
            for name, entry in values["languages"].items()
        }
        always = tuple(values["always"])
    except (TypeError, KeyError, AttributeError):
        raise MTPCError("each language needs lists of tokens and counts, as `mtpc vocab build` writes them.") from None
    return Rankings(vocab_size, languages, always)


def _ranking(content: Any, vocab_size: int) -> Ranking:
    if isinstance(content, Tensor):
        content = content.tolist()
    if isinstance(content, list):  # FR-Spec: ids, most frequent first
        return Ranking(tuple(content))
    if isinstance(content, dict):
        tensors = {name.rsplit(".", 1)[-1]: value for name, value in content.items() if isinstance(value, Tensor)}
        if "d2t" in tensors:  # EAGLE-3: token i of the draft is token i + d2t[i] of the target
            offsets = tensors["d2t"].to(torch.int64)
            return Ranking(tuple((torch.arange(len(offsets)) + offsets).tolist()), ranked=False)
        if "t2d" in tensors:  # EAGLE-3: whether each token of the target can be drafted
            chosen = tensors["t2d"].to(torch.bool)
            if len(chosen) != vocab_size:
                raise MTPCError(f"t2d has {len(chosen)} entries, but the target's vocabulary has {vocab_size}.")
            return Ranking(tuple(chosen.nonzero()[:, 0].tolist()), ranked=False)
        return _by_count(content)
    raise MTPCError(f"it holds a {type(content).__name__}, which is no draft vocabulary.")


def _by_count(content: dict[Any, Any]) -> Ranking:
    """How often each token occurred, by its id: speculators' token_freq.pt, or JSON, whose keys are strings."""
    try:
        counts = {int(token): int(count) for token, count in content.items()}
    except (TypeError, ValueError):
        raise MTPCError("it holds no list of tokens, no counts by token id, no d2t and no t2d.") from None
    order = sorted((token for token in counts if counts[token] > 0), key=lambda token: (-counts[token], token))
    return Ranking(tuple(order), tuple(counts[token] for token in order))
