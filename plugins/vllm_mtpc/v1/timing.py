"""Times decoding steps of vLLM's CPU runner at start-up; draft lengths are chosen by these costs."""

from __future__ import annotations

import functools
from typing import Any


def install(module: Any) -> None:
    """Wrap ``CPUWorker.compile_or_warm_up_model``; drafters without ``time_steps`` are not timed.

    Nor are data-parallel ranks, which wait for each other in every step but need not time equally many.

    Args:
        module: vLLM's module ``vllm.v1.worker.cpu_worker``.
    """
    worker = module.CPUWorker
    original = worker.compile_or_warm_up_model

    @functools.wraps(original)
    def compile_or_warm_up_model(self: Any, *others: Any, **named: Any) -> Any:
        drafter: Any = getattr(self.model_runner, "drafter", None)
        if hasattr(drafter, "time_steps") and self.parallel_config.data_parallel_size == 1:
            drafter.time_steps(self.model_runner)
        return original(self, *others, **named)  # it seeds random numbers, so it comes last

    worker.compile_or_warm_up_model = compile_or_warm_up_model
