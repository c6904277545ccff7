"""Whether a drafter fits in memory: told from its configuration, before anything of it is allocated."""

from __future__ import annotations

import math
import os

from mtpc.errors import MTPCError

FLOAT = 4  # bytes: drafters are loaded, and windows compute, in float32


def check_fits(parameters: int, leaves: tuple[int, ...], name: str) -> None:
    """Whether the machine has the memory for so many parameters, and for the distributions that one draft mixes.

    leaves: their shape.  name: of what says so, for the error.

    Errors: `MTPCError`.
    """
    needed, there = FLOAT * (parameters + math.prod(leaves)), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise MTPCError(
            f"{name} makes a drafter that needs {needed / 2**30:,.0f} GiB of memory to draft for one request, but this "
            f"machine has {there / 2**30:,.0f} GiB."
        )
