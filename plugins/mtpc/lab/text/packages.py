"""Download of archives from the Python package index with pip, without installing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mtpc.errors import MTPCError


def download(requirement: str, folder: Path, *, source: bool = False) -> Path:
    """Download one package without its dependencies.

    Args:
        requirement: Name and version of the package, as pip takes it.
        folder: Folder for the archive.
        source: Whether to download the source package instead of the wheel.

    Returns:
        Path of the archive.

    Raises:
        MTPCError: pip failed; the message holds its last line.
    """
    form = ["--no-binary", ":all:"] if source else ["--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *form, "-d", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise MTPCError(f"pip could not download {requirement}: {lines[-1]}")
    return max(folder.iterdir(), key=lambda path: path.stat().st_mtime)
