"""Whether this machine can hold something, asked before anything of it is made."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

from mtpc.errors import MTPCError

FLOAT = 4  # bytes: drafters are loaded, and windows compute, in float32
TRAINED = 4 * FLOAT  # of a parameter in training: itself, its gradient and two moments


def must_fit(numbers: int, name: str) -> None:
    """Whether the machine has memory for so many numbers: parameters, and what a draft for one request is made of.

    name: of what says so, for the error.

    Errors: `MTPCError`.
    """
    _refuse_beyond(_of_machine(), FLOAT * numbers, f"drafting for one request as {name} says")


def must_train(modules: Iterable[nn.Module], name: str) -> None:
    """Whether modules, made on the device "meta", can be trained here.

    Errors: `MTPCError` where they take more memory than what they would be trained on has.
    """
    there = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else _of_machine()
    parameters = sum(parameter.numel() for module in modules for parameter in module.parameters())
    _refuse_beyond(there, TRAINED * parameters, f"training {name}")


def _of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _refuse_beyond(there: int, needed: int, what: str) -> None:
    if needed > there:
        raise MTPCError(
            f"{what} takes {needed / 2**30:,.1f} GiB of memory, but this machine has {there / 2**30:,.1f} GiB."
        )
