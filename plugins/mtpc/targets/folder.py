"""What the folder of a target says of itself before anything of it is loaded."""

from __future__ import annotations

from pathlib import Path

from mtpc.declared import declared
from mtpc.directory.target import Target, TargetKeys
from mtpc.errors import MTPCError
from mtpc.families import recognise
from mtpc.json_file import is_there, read_json


def check_folder(folder: Path) -> TargetKeys:
    """What its config.json says of its sizes.

    Errors: `MTPCError` for a folder without a model, with an impossible one, or with a drafter.
    """
    config = folder / "config.json"
    if not is_there(config):
        raise MTPCError(f"{folder} is not a model folder (no config.json).")
    family = recognise(folder)
    if family is not None:
        raise MTPCError(f"{folder} is {family.title}, but a target was expected.")
    return declared(TargetKeys, read_json(config), str(config))


def stated_sizes(folder: Path) -> Target | None:
    """What a drafter must fit; None where the folder's config.json does not say so, as engines know other words for it.

    Errors: `MTPCError` as `check_folder`.
    """
    keys = check_folder(folder)
    sizes = keys.text_config or keys
    if sizes.hidden_size is None or sizes.vocab_size is None:
        return None
    return Target(sizes.hidden_size, sizes.vocab_size)
