"""Captures a call in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")


def capture_graph(call: Callable[[], Made], pool: Any = None) -> tuple[Callable[[], None], Made]:
    """Make a call once to warm up, then capture it: what replays it, and what it returns, which replays overwrite.

    pool: of memory that other graphs use as well, see ``torch.cuda.graph_pool_handle``; None: its own.
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
