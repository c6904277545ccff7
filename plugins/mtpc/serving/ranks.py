"""Checks that all tensor-parallel ranks draft with the same files and the same version of this package.

Ranks on several machines read separate directories.
If these differ, ranks draft different tokens and write keys and values of different texts, without an error.
So ranks exchange fingerprints of their files before they draft.
Values that each rank measures itself are replaced by those of the first rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mtpc import __version__
from mtpc.autoregressive.adapter_files import CONFIG
from mtpc.autoregressive.adapter_files import WEIGHTS as ADAPTERS
from mtpc.errors import MTPCError, first_line
from mtpc.files.weights import WEIGHTS
from mtpc.prompt_lookup.table import FILE
from mtpc.vocabulary.settings import parse_settings
from mtpc.vocabulary.token_counts import COUNTS

TIMEOUT = timedelta(minutes=10)  # for ranks that are still loading
SAMPLE_BYTES, SAMPLES = 1 << 12, 1 << 12  # bytes of a sample, and samples of a large file
MISSING = "missing"
PACKAGE = "mtpc-plugins"


def drafter_fingerprints(folder: Path, vocabulary: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of this package and digests of the files that this rank drafts with.

    Args:
        folder: The drafter checkpoint.
        vocabulary: The user's settings of the draft vocabulary; see `parse_settings`.

    Returns:
        Digests by file, and the version under `PACKAGE`.
    """
    files = [folder / name for name in ("config.json", WEIGHTS, FILE, CONFIG, ADAPTERS, COUNTS)]
    if (parsed := parse_settings(vocabulary, folder)) is not None:
        files.append(parsed[0])
    # Files are compared by name: each machine may have the checkpoint in another folder, such as the Hub's cache.
    named = {f"{file.name} of the drafter" if file.parent == folder else str(file): digest(file) for file in files}
    return {PACKAGE: __version__} | named


def digest(file: Path) -> str:
    """Return a digest of a file's size and content; of more than 16 MiB, only 4 KiB samples spread evenly are read.

    This takes a fraction of a second for a drafter of any size.
    Training changes every tensor, so the samples differ; a change of a few numbers by hand may not be detected.

    Args:
        file: The file; a missing one gives `MISSING`.
    """
    found = hashlib.sha256()
    try:
        size = file.stat().st_size
        found.update(str(size).encode())
        with file.open("rb") as stream:
            for start in range(0, size, max(SAMPLE_BYTES, size // SAMPLES)):
                stream.seek(start)
                found.update(stream.read(SAMPLE_BYTES))
    except OSError:
        return MISSING
    return found.hexdigest()


def check_ranks(group: dist.ProcessGroup, folder: Path, vocabulary: Mapping[str, Any]) -> None:
    """Check that all ranks draft with the same files and version; every rank must call this.

    Args:
        group: Gloo process group of the ranks.
        folder: The drafter checkpoint.
        vocabulary: The user's settings of the draft vocabulary; see `parse_settings`.

    Raises:
        MTPCError: Ranks differ, or a rank did not answer in time, for example one without the plugin.
    """
    mine = drafter_fingerprints(folder, vocabulary)
    reported: list[dict[str, str]] = [{}] * dist.get_world_size(group)
    try:
        dist.monitored_barrier(group, timeout=TIMEOUT, wait_all_ranks=True)
        dist.all_gather_object(reported, mine, group)
    except RuntimeError as error:
        raise MTPCError(
            f"not all {len(reported)} tensor-parallel ranks reported their drafter files in time: install mtpc-plugins "
            f"on every machine and enable its plugin there ({first_line(error)})."
        ) from None
    check_equal(reported)


def of_first_rank(group: dist.ProcessGroup, values: tuple[float, ...]) -> tuple[float, ...]:
    """Return the first rank's values on all ranks; every rank must call this.

    Args:
        group: Gloo process group of the ranks.
        values: This rank's values.
    """
    shared = torch.tensor(values, dtype=torch.float64)
    dist.broadcast(shared, dist.get_global_rank(group, 0), group)
    return tuple(shared.tolist())


def check_equal(reported: Sequence[Mapping[str, str]]) -> None:
    """Check that all ranks reported what the first one did.

    Args:
        reported: Fingerprints by rank.

    Raises:
        MTPCError: The ranks that differ.
    """
    for item in dict.fromkeys(item for rank_report in reported for item in rank_report):
        values = [rank_report.get(item, MISSING)[:12] for rank_report in reported]
        if others := [f"{value} on rank {rank}" for rank, value in enumerate(values) if value != values[0]]:
            raise MTPCError(
                f"tensor-parallel ranks would draft different tokens: {item} is {values[0]} on rank 0, but "
                f"{', '.join(others)}; install the same files and version everywhere."
            )
