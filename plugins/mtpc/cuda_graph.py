"""Capture of a function call in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")


def capture_graph(call: Callable[[], Made], pool: Any = None) -> tuple[Callable[[], None], Made]:
    """Run a call once to warm up, then capture it in a CUDA graph.

    Args:
        call: The function, without arguments. It must read and write static buffers.
        pool: Memory pool shared with other graphs, from ``torch.cuda.graph_pool_handle``. None: a new one.

    Returns:
        A function that replays the graph, and the result of the captured call, whose tensors each replay overwrites.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        made = call()
    return graph.replay, made
