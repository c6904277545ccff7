"""CUDA graphs of what this adapter adds to a step on Model Runner V2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager


class BatchGraphs:
    """A function of the batch size, from buffers to buffers, as one CUDA graph for each batch size."""

    def __init__(self, function: Callable[[int], None]) -> None:
        self.function = function
        self.manager: CudaGraphManager | None = None

    def prepare(self, vllm_config: Any, device: torch.device, cudagraph_mode: CUDAGraphMode) -> None:
        """There are to be graphs if the target's decoding steps run in graphs."""
        full = cudagraph_mode.decode_mode() == CUDAGraphMode.FULL and not vllm_config.speculative_config.enforce_eager
        mode = CUDAGraphMode.FULL_DECODE_ONLY if full else CUDAGraphMode.NONE
        self.manager = CudaGraphManager(vllm_config, device, mode, decode_query_len=1)

    def capture(self, title: str) -> None:
        """For every batch size; title: of vLLM's progress bar."""
        assert self.manager is not None
        self.manager.capture(lambda desc, warmup: lambda mode: self.function(desc.num_reqs), title)

    def run(self, rows: int, eager: bool) -> None:
        """Replay the graph of the next larger batch size, or call the function where there is none.

        eager: call it in any case, also before there can be graphs.
        """
        if not eager:
            assert self.manager is not None
            batch = self.manager.dispatch(rows, rows, uniform_token_count=1, num_active_loras=0)
            if batch.cg_mode == CUDAGraphMode.FULL:
                self.manager.run_fullgraph(batch)
                return
        self.function(rows)
