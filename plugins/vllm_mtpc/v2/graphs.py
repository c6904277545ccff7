"""CUDA graphs of the functions that this adapter adds to a decoding step on Model Runner V2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager


class BatchGraphs:
    """One CUDA graph per batch size of a function that reads and writes buffers.

    Protocol: `prepare`, then `capture`, then `run` in each step.

    vLLM's ``CudaGraphManager`` of these graphs is an attribute of the speculator. vLLM searches a speculator's
    attributes for managers when it discards graphs: after memory profiling and in elastic expert parallelism.

    Args:
        speculator: vLLM's or this project's.
        name: What the graphs compute, for the attribute's name and the progress bar.
        function: Receives the batch size.
    """

    def __init__(self, speculator: Any, name: str, function: Callable[[int], None]) -> None:
        self.speculator, self.name, self.function = speculator, name, function

    @property
    def attribute(self) -> str:
        """Name of the speculator's attribute that holds the manager."""
        return f"{self.name}_cudagraph_manager"

    @property
    def manager(self) -> CudaGraphManager:
        """The manager; call `prepare` first."""
        manager: CudaGraphManager | None = getattr(self.speculator, self.attribute, None)
        assert manager is not None
        return manager

    def prepare(self, cudagraph_mode: CUDAGraphMode) -> None:
        """Create the manager; there are graphs only if the target's decoding steps run in full CUDA graphs.

        Args:
            cudagraph_mode: The target's.
        """
        config, device = self.speculator.vllm_config, self.speculator.device
        full = cudagraph_mode.decode_mode() == CUDAGraphMode.FULL and not config.speculative_config.enforce_eager
        mode = CUDAGraphMode.FULL_DECODE_ONLY if full else CUDAGraphMode.NONE
        setattr(self.speculator, self.attribute, CudaGraphManager(config, device, mode, decode_query_len=1))

    def capture(self) -> None:
        """Capture a graph for every batch size."""
        title = f"Capturing CUDA graphs ({self.name.replace('_', ' ')})"
        self.manager.capture(lambda desc, warmup: lambda mode: self.function(desc.num_reqs), title)

    def run(self, rows: int, eager: bool) -> None:
        """Replay the graph of the next larger batch size, or call the function if there is none.

        Args:
            rows: Batch size.
            eager: Whether to call the function in any case, even before `prepare`.
        """
        if not eager:
            batch = self.manager.dispatch(rows, rows, uniform_token_count=1, num_active_loras=0)
            if batch.cg_mode == CUDAGraphMode.FULL:
                self.manager.run_fullgraph(batch)
                return
        self.function(rows)
