"""Whether a drafter fits in memory: told from its configuration, before anything of it is allocated."""

from __future__ import annotations

import os

from mtpc.errors import MTPCError

FLOAT = 4  # bytes: drafters are loaded, and windows compute, in float32


def check_fits(numbers: int, name: str) -> None:
    """Whether the machine has memory for so many numbers: parameters, and what a draft for one request is made of.

    name: of what says so, for the error.

    Errors: `MTPCError`.
    """
    needed, there = FLOAT * numbers, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise MTPCError(
            f"{name} makes a drafter that needs {needed / 2**30:,.0f} GiB of memory to draft for one request, but this "
            f"machine has {there / 2**30:,.0f} GiB."
        )
