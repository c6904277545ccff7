"""Checks of a target's folder before its weights are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.json_file import is_there, read_json
from mtpc.files.target import Target, TargetKeys, check_target
from mtpc.methods import method_of, recognize


def check_folder(folder: Path, expected: str = "a target") -> dict[str, Any]:
    """Read and check the config.json of a target.

    Args:
        folder: Folder of the target.
        expected: What it is to be, for errors.

    Returns:
        Values of config.json.

    Raises:
        MTPCError: The folder holds no model, a drafter, or impossible values.
    """
    config = folder / "config.json"
    if not is_there(config):
        raise MTPCError(f"{folder} is not a model folder (no config.json).")
    method = recognize(folder)
    if method is not None:
        raise MTPCError(f"{folder} is {method.title}, but {expected} was expected.")
    values = read_json(config)
    validated(TargetKeys, values, str(config))
    return values


def stated_sizes(folder: Path) -> Target | None:
    """Return the sizes that a drafter of this target must have.

    Args:
        folder: Folder of the target.

    Returns:
        Hidden size and vocabulary size. None if config.json uses other keys, which only engines read.

    Raises:
        MTPCError: As `check_folder`.
    """
    values = check_folder(folder)
    inner = values.get("text_config")  # multimodal models
    sizes = validated(TargetKeys, inner if isinstance(inner, dict) else values, str(folder / "config.json"))
    if sizes.hidden_size is None or sizes.vocab_size is None:
        return None
    return Target(sizes.hidden_size, sizes.vocab_size)


def check_drafters(folders: Iterable[Path], target: Path) -> None:
    """Check the configurations of drafters before the weights of their target are loaded.

    Args:
        folders: Drafter checkpoints.
        target: Folder of the target.

    Raises:
        MTPCError: One is no drafter, or was trained for a target of other sizes.
    """
    sizes = stated_sizes(target)
    for folder in folders:
        config = method_of(folder).read_config(folder)
        if sizes is not None:
            check_target(folder, config, sizes)


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a model's configuration and weights.

    Args:
        folder: Folder of a target or of a drafter, with a config.json.
    """
    digest = hashlib.sha256()
    for file in [*sorted(folder.glob("*.safetensors")), *sorted(folder.glob("*.bin"))]:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    digest.update((folder / "config.json").read_bytes())
    return digest.hexdigest()
