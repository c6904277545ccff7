"""Whether all tensor-parallel ranks draft with the same files and the same version of this package.

Ranks on several machines read a directory each.  Where these differ, ranks draft different tokens, write keys and
values of different texts, and nobody would notice.  So each says what it drafts with before it drafts; and of what each
measures for itself, all take what the first one found.
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
from mtpc.errors import MTPCError, first_line
from mtpc.files.weights import WEIGHTS
from mtpc.prompt_lookup.table import FILE
from mtpc.vocabulary.settings import parse_settings

WAIT = timedelta(minutes=10)  # for ranks that are still loading
PIECE, PIECES = 1 << 12, 1 << 12  # of a file: bytes, and how many there are of a large one
MISSING = "missing"
PACKAGE = "mtpc-plugins"


def drafting_with(folder: Path, vocabulary: Mapping[str, Any]) -> dict[str, str]:
    """What this rank says: the version of this package, and digests of the files that it drafts with.

    folder: of the drafter.  vocabulary: what the user says of the draft vocabulary, see `parse_settings`.
    """
    files = [folder / name for name in ("config.json", WEIGHTS, FILE)]
    if (parsed := parse_settings(vocabulary, folder)) is not None:
        files.append(parsed[0])
    # By their names, as each machine may keep the drafter elsewhere: one from the Hub is in a cache.
    named = {f"{file.name} of the drafter" if file.parent == folder else str(file): digest(file) for file in files}
    return {PACKAGE: __version__} | named


def digest(file: Path) -> str:
    """Of a file's size and content; of more than 16 MiB only of pieces of 4 KiB, spread evenly over it.

    That takes a fraction of a second for a drafter of any size.  A training changes every tensor, and so what the
    pieces hold; of a few numbers that were changed by hand it may see nothing.
    """
    found = hashlib.sha256()
    try:
        size = file.stat().st_size
        found.update(str(size).encode())
        with file.open("rb") as stream:
            for start in range(0, size, max(PIECE, size // PIECES)):
                stream.seek(start)
                found.update(stream.read(PIECE))
    except OSError:
        return MISSING
    return found.hexdigest()


def check_ranks(group: dist.ProcessGroup, folder: Path, vocabulary: Mapping[str, Any]) -> None:
    """Whether all ranks of a group of processes that speak gloo draft with the same; each of them asks.

    Errors: `MTPCError` on every rank for what is not the same, and for a rank that says nothing in time: one without
    the plugin.
    """
    own = drafting_with(folder, vocabulary)
    said: list[dict[str, str]] = [{}] * dist.get_world_size(group)
    try:
        dist.monitored_barrier(group, timeout=WAIT, wait_all_ranks=True)
        dist.all_gather_object(said, own, group)
    except RuntimeError as error:
        raise MTPCError(
            f"not all {len(said)} tensor-parallel ranks have said what they draft with: the machine of each needs this "
            f"package, where nothing may leave its plugin out ({first_line(error)})."
        ) from None
    compare(said)


def of_first_rank(group: dist.ProcessGroup, values: tuple[float, ...]) -> tuple[float, ...]:
    """What the first rank of a group of processes that speak gloo has measured; each of them asks."""
    told = torch.tensor(values, dtype=torch.float64)
    dist.broadcast(told, dist.get_global_rank(group, 0), group)
    return tuple(told.tolist())


def compare(said: Sequence[Mapping[str, str]]) -> None:
    """What each rank says must be what the first one does.

    Errors: `MTPCError` with the ranks that differ.
    """
    for what in dict.fromkeys(what for each in said for what in each):
        values = [each.get(what, MISSING)[:12] for each in said]
        if others := [f"{value} on rank {rank}" for rank, value in enumerate(values) if value != values[0]]:
            raise MTPCError(
                f"tensor-parallel ranks would draft different tokens: {what} is {values[0]} on rank 0, but "
                f"{', '.join(others)}; all of them need the same."
            )
