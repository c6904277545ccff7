"""Memory checks that run before anything large is allocated."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

from mtpc.errors import MTPCError

FLOAT_BYTES = 4  # drafters are loaded, and parallel parts compute, in float32
BYTES_PER_TRAINED_PARAMETER = 4 * FLOAT_BYTES  # the parameter, its gradient and two moments
MAX_PROBS = 1 << 26  # draft probabilities that are computed at a time: 256 MB
BYTES_PER_PROB = 3 * FLOAT_BYTES  # peak bytes per vocabulary token and draft position: the result and two temporaries


def check_drafter_memory(numbers: int, name: str) -> None:
    """Check that this machine has memory for a drafter and one request.

    Args:
        numbers: float32 numbers: parameters, and what a draft for one request is computed from.
        name: What describes the drafter (a file or a command), for the error.

    Raises:
        MTPCError: Where they take more memory than the machine has.
    """
    _check_memory(_machine_memory(), FLOAT_BYTES * numbers, f"a drafter of the sizes in {name}")


def check_training_memory(modules: Iterable[nn.Module], name: str) -> None:
    """Check that modules can be trained on this device.

    Args:
        modules: Modules on the device "meta".
        name: What is trained, for the error.

    Raises:
        MTPCError: Where they take more memory than the device has.
    """
    parameters = sum(parameter.numel() for module in modules for parameter in module.parameters())
    _check_memory(_device_memory(), BYTES_PER_TRAINED_PARAMETER * parameters, f"training {name}")


def check_language_model_memory(needed: int, what: str, device: torch.device) -> None:
    """Check that a draft model with a cache of its own fits on its device.

    Args:
        needed: Bytes of its weights, keys and values.
        what: The model and the size of its cache, for the error.
        device: Where it runs.

    Raises:
        MTPCError: Where they take more memory than the device has.
    """
    available = _machine_memory() if device.type == "cpu" else _device_memory()
    _check_memory(available, needed, what, "; convert it again with fewer --slots or a smaller --context")


def check_batch_memory(
    batch: int, drafts: int, tokens: int, kept: int | None = None, autoregressive: bool = False
) -> str:
    """Return a log line on the memory that drafting for the largest batch takes.

    A parallel part takes no more than this (a test of memory budgets checks it); the engine's draft loop takes less.

    Args:
        batch: Requests.
        drafts: Draft tokens per request.
        tokens: V, tokens of the target's vocabulary.
        kept: Bytes of distributions that are kept from step to step. A parallel part then drafts for a part of the
            batch at a time (`ParallelPart.parts`). None: it drafts for the whole batch at once.
        autoregressive: Whether an autoregressive part drafts, one token for the whole batch at a time.

    Returns:
        One line with the memory in MB.

    Raises:
        MTPCError: Where the device has less.
    """
    needed = BYTES_PER_PROB * batch * drafts * tokens
    if kept is not None:
        needed = kept + min(needed, BYTES_PER_PROB * max(MAX_PROBS, autoregressive * batch * tokens))
    what = f"drafting {drafts} tokens from {tokens} for {batch} requests at a time"
    _check_memory(_device_memory(), needed, what, "; lower the engine's limit of concurrent requests")
    return f"{what} takes up to {needed / 1e6:,.1f} MB"


def _device_memory() -> int:
    """Return the bytes of the first GPU, else of the machine."""
    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else _machine_memory()


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_memory(available: int, needed: int, what: str, fix: str = "") -> None:
    if needed > available:
        gib = 2**30
        raise MTPCError(
            f"{what} takes {needed / gib:,.1f} GiB of memory, but this machine has {available / gib:,.1f} GiB{fix}."
        )
