"""Options that are paths: resolved and checked by typer before a command starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtpc.files.hub import CONFIG, FILES, is_hub_id, local_folder
from mtpc.lab.output_paths import check_new_folder, try_file, try_folder


def folder_to_write(path: Path | None) -> Path | None:
    """Check an output folder, see `mtpc.lab.output_paths.try_folder`.

    Args:
        path: The option's value; None where it was not given.

    Returns:
        The same value.

    Raises:
        MTPCError: The folder cannot be created or written into.
    """
    if path is not None:
        try_folder(path)
    return path


def new_folder(path: Path | None) -> Path | None:
    """Check that an output folder is new or empty and can be written, see `mtpc.lab.output_paths`.

    Args:
        path: The option's value; None where it was not given.

    Returns:
        The same value.

    Raises:
        MTPCError: The folder holds something, or cannot be created or written into.
    """
    folder_to_write(path)
    if path is not None:
        check_new_folder(path)
    return path


def file_to_write(path: Path | None) -> Path | None:
    """Check an output file, see `mtpc.lab.output_paths.try_file`.

    Args:
        path: The option's value; None where it was not given.

    Returns:
        The same value.

    Raises:
        MTPCError: The file cannot be written.
    """
    if path is not None:
        try_file(path)
    return path


def model_folder(path: Path | None) -> Path | None:
    """Return the local folder of a drafter or target.

    Args:
        path: A path, or ``owner/name[@revision]`` of the Hugging Face Hub; None where the option was not given.

    Raises:
        MTPCError: The Hub does not have it, see `mtpc.files.hub.local_folder`.
    """
    return None if path is None else _folder(path)


def config_folder(path: Path | None) -> Path | None:
    """Return the local folder with a model's config.json, which alone is downloaded, see `model_folder`.

    Args:
        path: A path, or an id of the Hub; None where the option was not given.
    """
    return None if path is None else _folder(path, CONFIG)


def model_folders(paths: list[Path]) -> list[Path]:
    """Return the local folders of several drafters, see `model_folder`.

    Args:
        paths: Paths or ids of the Hub.
    """
    return list(map(_folder, paths))


def published_folder(path: Path) -> Path:
    """Return the local folder of a published checkpoint, also one with pickled weights, see `model_folder`.

    Args:
        path: A path, or an id of the Hub.
    """
    return _folder(path, (*FILES, "*.bin", "*.pt", "*.yaml"))


def _folder(path: Path, files: Sequence[str] = FILES) -> Path:
    name, _, revision = str(path).partition("@")
    return local_folder(name, revision or None, files) if is_hub_id(name) and not path.exists() else path
