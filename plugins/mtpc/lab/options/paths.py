"""Where commands write: typer tries it before a command starts."""

from __future__ import annotations

from pathlib import Path

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
