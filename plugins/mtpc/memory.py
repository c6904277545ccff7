"""Whether this machine can hold something, asked before anything of it is made."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

from mtpc.errors import MTPCError

FLOAT_BYTES = 4  # bytes: drafters are loaded, and windows compute, in float32
BYTES_PER_TRAINED_PARAMETER = 4 * FLOAT_BYTES  # of a parameter in training: itself, its gradient and two moments
MAX_PROBS = 1 << 26  # probabilities of drafts that are made at a time: 256 MB
BYTES_PER_PROB = (
    3 * FLOAT_BYTES
)  # of a token of the vocabulary at a drafted position: what is stated of it, and on the way there


def check_drafter_memory(numbers: int, name: str) -> None:
    """Whether the machine has memory for so many numbers: parameters, and what a draft for one request is made of.

    name: of what says so, for the error.

    Errors: `MTPCError`.
    """
    _refuse_beyond(_of_machine(), FLOAT_BYTES * numbers, f"drafting for one request as {name} says")


def check_training_memory(modules: Iterable[nn.Module], name: str) -> None:
    """Whether modules, made on the device "meta", can be trained here.

    Errors: `MTPCError` where they take more memory than what they would be trained on has.
    """
    parameters = sum(parameter.numel() for module in modules for parameter in module.parameters())
    _refuse_beyond(_of_device(), BYTES_PER_TRAINED_PARAMETER * parameters, f"training {name}")


def check_batch_memory(
    batch: int, drafts: int, tokens: int, kept: int | None = None, autoregressive: bool = False
) -> str:
    """What the largest batch takes while it is drafted for, for a line of the log.

    batch: requests; drafts: tokens of each; tokens: of the target's vocabulary.  A window takes no more (the test of
    budgets holds it to that), the engine's own loop less.  kept: bytes of distributions that are kept from step to
    step, beside which a window drafts for a part of the batch at a time (`ParallelPart.parts`); None: for all of it.
    serial: whether an autoregressive part drafts, a token for all of the batch at a time.

    Errors: `MTPCError` where the device has less.
    """
    needed = BYTES_PER_PROB * batch * drafts * tokens
    if kept is not None:
        needed = kept + min(needed, BYTES_PER_PROB * max(MAX_PROBS, autoregressive * batch * tokens))
    what = f"drafting {drafts} tokens from {tokens} for {batch} requests at a time"
    _refuse_beyond(_of_device(), needed, what, "; let it run fewer requests at a time")
    return f"{what} takes up to {needed / 1e6:,.1f} MB"


def _of_device() -> int:
    """Of the first GPU, else of the machine."""
    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else _of_machine()


def _of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _refuse_beyond(there: int, needed: int, what: str, instead: str = "") -> None:
    if needed > there:
        raise MTPCError(
            f"{what} takes {needed / 2**30:,.1f} GiB of memory, but this machine has {there / 2**30:,.1f} GiB{instead}."
        )
