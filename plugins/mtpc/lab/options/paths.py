"""Folders that commands read, and where they write: typer resolves and tries them before a command starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtpc.files.hub import FILES, is_hub_id, local_folder
from mtpc.lab.output_paths import try_file, try_folder


def folder_to_write(path: Path | None) -> Path | None:
    """Errors: `MTPCError` for a folder that cannot be made or written into."""
    if path is not None:
        try_folder(path)
    return path


def file_to_write(path: Path | None) -> Path | None:
    """Errors: `MTPCError` for a file that cannot be written."""
    if path is not None:
        try_file(path)
    return path


def model_folder(path: Path | None) -> Path | None:
    """Return the folder of a drafter or target that is named by its path or as ``owner/name[@revision]`` of the Hub.

    Errors: `MTPCError`, see `mtpc.files.hub.local_folder`.
    """
    return None if path is None else _folder(path)


def model_folders(paths: list[Path]) -> list[Path]:
    """Return the folders of several, as `model_folder`."""
    return list(map(_folder, paths))


def published_folder(path: Path) -> Path:
    """Return the folder of a published checkpoint, as `model_folder`; its weights may also be pickled."""
    return _folder(path, (*FILES, "*.bin"))


def _folder(path: Path, files: Sequence[str] = FILES) -> Path:
    name, _, revision = str(path).partition("@")
    return local_folder(name, revision or None, files) if is_hub_id(name) and not path.exists() else path
