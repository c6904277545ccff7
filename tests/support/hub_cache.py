"""A cache of huggingface_hub that holds folders as repositories, and no network."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(home: Path, name: str, folder: Path, commit: str = COMMIT, ref: str = "main") -> Path:
    """Put a folder into the cache of ``HF_HOME`` as a repository, and return its snapshot."""
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        (snapshot / file.name).symlink_to(file)
    reference = repository / "refs" / ref
    reference.parent.mkdir(exist_ok=True)
    reference.write_text(commit)
    return snapshot


def go_offline(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Do what ``HF_HOME`` and ``HF_HUB_OFFLINE=1`` do before huggingface_hub is imported."""
    patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
