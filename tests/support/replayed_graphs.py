"""Lets vLLM's manager of CUDA graphs capture and replay this project's on a CPU (`tests.support.fake_graphs`).

The autoregressive part, whose graphs are vLLM's own, runs eagerly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu import cudagraph_utils

from tests.support.fake_graphs import FakeGraph
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.mixing import MixingSpeculator


@dataclass
class Replays:
    """How often graphs were replayed, and how often for fewer requests than they were captured for."""

    replayed: int = 0
    padded: int = 0


def replay_instead_of_capture(sizes: tuple[int, ...]) -> Replays:
    """Make every window of up to ``max(sizes)`` requests in this process a replay, and what is copied likewise."""
    replays = Replays()
    initialise, run = MixingSpeculator._prepare_graphs, BatchGraphs.run

    @torch.inference_mode()
    def capture(self: Any, create_forward_fn: Any, progress_bar_desc: str = "") -> None:
        for batches in self._capture_descs.values():
            for batch in batches:
                create_forward_fn(batch, warmup=True)(CUDAGraphMode.NONE)
                self.graphs[batch] = FakeGraph()
                self.graphs[batch].capture(partial(create_forward_fn(batch, warmup=False), CUDAGraphMode.NONE))
        self._graphs_captured = True

    def prepare_graphs(self: MixingSpeculator, cudagraph_mode: CUDAGraphMode) -> None:
        settings = self.vllm_config.compilation_config
        settings.cudagraph_capture_sizes, settings.max_cudagraph_capture_size = list(sizes), max(sizes)
        self.speculative_config.enforce_eager = False
        initialise(self, CUDAGraphMode.FULL_DECODE_ONLY)
        settings.cudagraph_capture_sizes = []
        self._capture_graphs()

    def counted(self: BatchGraphs, rows: int, eager: bool) -> None:
        if not eager and rows <= max(sizes):
            replays.replayed += 1
            replays.padded += rows not in sizes
        run(self, rows, eager)

    cudagraph_utils.CudaGraphManager.capture = capture
    cudagraph_utils.current_platform.get_global_graph_pool = lambda: None
    MixingSpeculator._prepare_graphs = prepare_graphs  # type: ignore[method-assign]
    BatchGraphs.run = counted  # type: ignore[method-assign]
    return replays
