"""Drafter checkpoints and settings that are wrong in one way each."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

Settings = dict[str, Any]


class Broken(NamedTuple):
    """How a valid checkpoint and valid settings are broken, and a part of the error message."""

    name: str
    folder: Callable[[Path], None] | None
    settings: Settings
    sentence: str


def _config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        values = json.loads(file.read_text())
        change(values)
        file.write_text(json.dumps(values))

    return apply


def _weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


def _in_place(file: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else where a file was."""

    def apply(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return apply


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _resize(key: str, size: int) -> Callable[[dict[str, Any]], object]:
    """As if trained for another target: consistent in the engines' keys and in the drafter's own."""
    both = {"hidden_size": ("hidden_size", "head_dim"), "vocab_size": ("vocab_size",)}[key]
    return lambda values: (values.update(dict.fromkeys(both, size)), values["mtpc"].update({key: size}))


LEAVES = "head.leaves.weight"
BROKEN = (
    Broken("no directory", shutil.rmtree, {}, "is not a directory"),
    Broken("no config.json", lambda folder: (folder / "config.json").unlink(), {}, "config.json is missing"),
    Broken("no JSON", lambda folder: (folder / "config.json").write_text("{") and None, {}, "cannot be read as JSON"),
    Broken(
        "deep JSON", lambda folder: (folder / "config.json").write_text("[" * 10**6) and None, {}, "recursion limit"
    ),
    Broken("a pipe", _in_place("config.json", os.mkfifo), {}, "config.json is not a file"),
    Broken(
        "a link to nothing",
        _in_place("config.json", lambda file: file.symlink_to("x")),
        {},
        "is not a file, or is a broken link",
    ),
    Broken("weights in a pipe", _in_place("model.safetensors", os.mkfifo), {}, "model.safetensors is not a file"),
    Broken("no architectures", _config(lambda values: values.update(architectures=5)), {}, "architectures is 5, but"),
    Broken("an absurd size", _config(lambda values: values["mtpc"].update(hidden_size=10**30)), {}, "at 'hidden_size'"),
    Broken("a long name", None, {"model": "/" + "a" * 300}, "is not a directory"),
    Broken("no section mtpc", _config(lambda values: values.pop("mtpc")), {}, "has no section 'mtpc'"),
    Broken("unknown key", _config(lambda values: values["mtpc"].update(windows=8)), {}, "unknown key 'windows'"),
    Broken("missing key", _config(lambda values: values["mtpc"].pop("rank")), {}, "the key 'rank' is missing"),
    Broken("unknown circuit", _config(lambda values: values["mtpc"].update(circuit="tt")), {}, "tt"),
    Broken("a later format", _config(lambda values: values["mtpc"].update(version=9)), {}, "mtpc.version is 9"),
    Broken("another hidden size", _config(_resize("hidden_size", 96)), {}, "with hidden_size 96, but the target"),
    Broken("another vocabulary", _config(_resize("vocab_size", 300)), {}, "with vocab_size 300, but the target"),
    Broken("no weights", lambda folder: (folder / "model.safetensors").unlink(), {}, "model.safetensors is missing"),
    Broken("half a file", _truncate, {}, "is damaged"),
    Broken("missing tensor", _weights(lambda found: found.pop(LEAVES)), {}, f"the tensor '{LEAVES}' is missing"),
    Broken("extra tensor", _weights(lambda found: found.update(more=torch.ones(1))), {}, "'more' is unknown"),
    Broken("wrong shape", _weights(lambda found: found.update({LEAVES: found[LEAVES][1:].clone()})), {}, "has shape"),
    Broken("wrong window", _config(lambda values: values["mtpc"].update(window=9)), {}, "has shape"),
    Broken("NaN", _weights(lambda found: found[LEAVES].view(-1)[7:8].fill_(torch.nan)), {}, "not finite"),
    Broken("integers", _weights(lambda found: found.update({LEAVES: found[LEAVES].int()})), {}, "floating-point"),
    Broken("too many drafts", None, {"num_speculative_tokens": 8}, "must be a whole number from 1 to 7"),
    Broken("no drafts", None, {"num_speculative_tokens": 0}, "from 1 to 7"),
    Broken("drafts not set", None, {"num_speculative_tokens": None}, "num_speculative_tokens is missing"),
    Broken("another method", None, {"method": "eagle3"}, "its method must be 'eagle'"),
    Broken("unknown setting", None, {"num_speculative_token": 5}, "no key 'num_speculative_token'"),
    Broken("unknown sampling", None, {"draft_sample_method": "beam"}, "draft_sample_method must be one of"),
    Broken("parallel drafting", None, {"parallel_drafting": True}, "parallel_drafting is True"),
    Broken("quantization", None, {"quantization": "fp8"}, "quantization is 'fp8'"),
)


def broken_copy(case: Broken, good: Path, folder: Path) -> Settings:
    """Copy the good directory to ``folder``, break it, and return vLLM's speculative settings for it."""
    shutil.copytree(good, folder)
    if case.folder is not None:
        case.folder(folder)
    return {"method": "eagle", "model": str(folder), "num_speculative_tokens": 5} | case.settings
