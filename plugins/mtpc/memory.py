"""Whether this machine can hold what is to be trained, asked before anything of it is made."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

from mtpc.errors import MTPCError

BYTES = 16  # of a parameter in training: float32, its gradient and two moments


def must_fit(modules: Iterable[nn.Module], name: str) -> None:
    """Whether modules, made on the device "meta", can be trained here.

    Errors: `MTPCError` where they take more memory than this machine has.
    """
    needed = BYTES * sum(parameter.numel() for module in modules for parameter in module.parameters())
    if torch.cuda.is_available():
        there = torch.cuda.get_device_properties(0).total_memory
    else:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise MTPCError(
            f"training {name} takes {needed / 2**30:,.1f} GiB, but this machine has {there / 2**30:,.1f} GiB: make it "
            "smaller."
        )
