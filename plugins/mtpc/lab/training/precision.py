"""Precision of the matrix products of a training, chosen by their speed."""

from __future__ import annotations

import time
from functools import cache

import torch

from mtpc.lab.training.processes import Processes

TIMED_SIZE, TIMED_CALLS = 512, 8
MARGIN = 1.5  # speedup from which bfloat16 is used


def training_dtype(device: torch.device | str) -> torch.dtype:
    """Return the dtype of matrix products in training: bfloat16 where it is faster, else float32.

    GPUs always use bfloat16. CPUs with AVX512-BF16 compute it between four times as fast as float32 and half as fast,
    so one product is timed in each dtype, once per process. Processes of one training use the same dtype.

    Args:
        device: Device of the training.
    """
    return torch.bfloat16 if torch.device(device).type != "cpu" or _cpu_prefers_bfloat16() else torch.float32


def products_for(device: torch.device) -> torch.autocast:
    """Return a context in which matrix products have the dtype of `training_dtype`.

    Args:
        device: Device of the training.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=training_dtype(device) == torch.bfloat16)


@cache
def _cpu_prefers_bfloat16() -> bool:
    of_bfloat16, of_float32 = (product_seconds(dtype, TIMED_SIZE) for dtype in (torch.bfloat16, torch.float32))
    return Processes.started().largest(MARGIN * of_bfloat16 / of_float32) < 1


def product_seconds(dtype: torch.dtype, size: int, device: torch.device | str = "cpu") -> float:
    """Return the seconds of the fastest of several products of two square matrices.

    Args:
        dtype: Dtype of the matrices.
        size: Rows of each matrix.
        device: Device of the matrices.
    """
    matrix, seconds = torch.ones(size, size, dtype=dtype, device=device), []
    for _ in range(TIMED_CALLS):
        _synchronize(device)
        started = time.perf_counter()
        matrix @ matrix
        _synchronize(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _synchronize(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
