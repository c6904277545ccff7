"""How long something takes on a device, how many kernels it launches, and how fast the device's memory is."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from mtpc.cuda_graph import capture_graph
from tests.mtpc.parallel.trace import Trace

TIMES = 20


def microseconds(call: Callable[[], object], device: torch.device) -> float:
    """Of one call: on a GPU in a graph, as engines make it, else as it is."""
    if device.type != "cuda":
        call()
        started = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - started)
    replay, _ = capture_graph(call)
    replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(TIMES):
        replay()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / TIMES


def kernels(call: Callable[[], object], device: torch.device) -> int:
    """That one call launches, copies and fills included; without a GPU as many as `Trace` counts."""
    call()
    if device.type != "cuda":
        with Trace() as trace:
            call()
        return trace.kernels
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == DeviceType.CUDA for event in profiled.events())


def bytes_per_second(device: torch.device, size: int = 1 << 30) -> float:
    """Of the device's memory, read and written: of a copy."""
    numbers = torch.empty(size, dtype=torch.uint8, device=device)
    copied = torch.empty_like(numbers)
    return 2e6 * size / microseconds(lambda: copied.copy_(numbers), device)
