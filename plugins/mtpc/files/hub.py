"""The folder of a drafter or target that the user named by its path or by its id on the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mtpc.errors import MTPCError, first_line
from mtpc.files.json_file import is_folder

CONFIG = ("config.json",)
FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")  # of a checkpoint and its tokenizer
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def is_hub_id(name: Path | str) -> bool:
    """Return whether a name can only mean a repository on the Hub: ``owner/name``, where no such folder exists.

    Args:
        name: A path or an id.
    """
    return _ID.fullmatch(str(name)) is not None and not is_folder(name)


def local_folder(name: Path | str, revision: str | None = None, files: Sequence[str] = FILES) -> Path:
    """Return a local folder: the named one, or the snapshot of a repository, downloaded unless it is cached.

    ``HF_HUB_OFFLINE``, ``HF_HOME`` and ``HF_TOKEN`` mean what they mean for huggingface_hub.

    Args:
        name: A folder or an id ``owner/name``; what can be neither is returned unchanged.
        revision: Branch, tag or commit of a repository; None: its main branch.
        files: Patterns of the files to download.

    Raises:
        MTPCError: There is no such repository or revision, or it is not cached and cannot be downloaded.
    """
    return _snapshot(str(name), revision, tuple(files)) if is_hub_id(name) else Path(name)


@cache
def _snapshot(name: str, revision: str | None, files: tuple[str, ...]) -> Path:
    """Download once in a process, so that all of it reads one commit."""
    from huggingface_hub import constants, errors, snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except errors.RevisionNotFoundError:
        reason = f"the repository has no revision {revision!r}"
    except errors.RepositoryNotFoundError:
        reason = "the repository does not exist, or HF_TOKEN may not read it"
    except errors.LocalEntryNotFoundError:
        offline = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the Hub cannot be reached"
        reason = f"{offline}, and {revision or 'its main branch'} is not complete in the cache {constants.HF_HUB_CACHE}"
    except Exception as error:  # any network failure
        reason = first_line(error)
    raise MTPCError(f"{name} is neither a folder nor available from the Hugging Face Hub: {reason}.")
