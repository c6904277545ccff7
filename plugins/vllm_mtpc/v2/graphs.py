"""CUDA graphs of what this adapter adds to a step on Model Runner V2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager


class BatchGraphs:
    """A function of the batch size, from buffers to buffers, as one CUDA graph for each batch size.

    vLLM's manager of these graphs is an attribute of the speculator.  vLLM searches a speculator's attributes for
    managers when it discards what was captured: after profiling memory, and in elastic expert parallelism.

    speculator: vLLM's own or ours.  held: what the graphs compute, for the attribute's name and the progress bar.
    """

    def __init__(self, speculator: Any, held: str, function: Callable[[int], None]) -> None:
        self.speculator, self.held, self.function = speculator, held, function

    @property
    def attribute(self) -> str:
        """Name of the speculator's attribute."""
        return f"{self.held}_cudagraph_manager"

    @property
    def manager(self) -> CudaGraphManager:
        """Once there is one, see `prepare`."""
        manager: CudaGraphManager | None = getattr(self.speculator, self.attribute, None)
        assert manager is not None
        return manager

    def prepare(self, cudagraph_mode: CUDAGraphMode) -> None:
        """There are to be graphs if the target's decoding steps run in graphs."""
        config, device = self.speculator.vllm_config, self.speculator.device
        full = cudagraph_mode.decode_mode() == CUDAGraphMode.FULL and not config.speculative_config.enforce_eager
        mode = CUDAGraphMode.FULL_DECODE_ONLY if full else CUDAGraphMode.NONE
        setattr(self.speculator, self.attribute, CudaGraphManager(config, device, mode, decode_query_len=1))

    def capture(self) -> None:
        """For every batch size."""
        title = f"Capturing {self.held} in CUDA graphs"
        self.manager.capture(lambda desc, warmup: lambda mode: self.function(desc.num_reqs), title)

    def run(self, rows: int, eager: bool) -> None:
        """Replay the graph of the next larger batch size, or call the function where there is none.

        eager: call it in any case, also before there can be graphs.
        """
        if not eager:
            batch = self.manager.dispatch(rows, rows, uniform_token_count=1, num_active_loras=0)
            if batch.cg_mode == CUDAGraphMode.FULL:
                self.manager.run_fullgraph(batch)
                return
        self.function(rows)
