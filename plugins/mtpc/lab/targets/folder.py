"""What the folder of a target says of itself before anything of it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.files.json_file import is_there, read_json
from mtpc.files.target import Target, TargetKeys
from mtpc.methods import recognize


def check_folder(folder: Path) -> dict[str, Any]:
    """What its config.json holds.

    Errors: `MTPCError` for a folder without a model, with an impossible one, or with a drafter.
    """
    config = folder / "config.json"
    if not is_there(config):
        raise MTPCError(f"{folder} is not a model folder (no config.json).")
    method = recognize(folder)
    if method is not None:
        raise MTPCError(f"{folder} is {method.title}, but a target was expected.")
    values = read_json(config)
    declared(TargetKeys, values, str(config))
    return values


def stated_sizes(folder: Path) -> Target | None:
    """What a drafter must fit; None where the folder's config.json does not say so, as engines know other words for it.

    Errors: `MTPCError` as `check_folder`.
    """
    values = check_folder(folder)
    inner = values.get("text_config")  # of a model that reads more than text
    sizes = declared(TargetKeys, inner if isinstance(inner, dict) else values, str(folder / "config.json"))
    if sizes.hidden_size is None or sizes.vocab_size is None:
        return None
    return Target(sizes.hidden_size, sizes.vocab_size)
