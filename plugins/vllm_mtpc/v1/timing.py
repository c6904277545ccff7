"""Times the steps of vLLM's CPU runner while the engine starts, so that draft lengths are chosen by what they cost."""

from __future__ import annotations

import functools
from typing import Any


def install(module: Any) -> None:
    """Wrap ``CPUWorker.compile_or_warm_up_model`` of the module; drafters of others are left alone."""
    worker = module.CPUWorker
    original = worker.compile_or_warm_up_model

    @functools.wraps(original)
    def compile_or_warm_up_model(self: Any, *others: Any, **named: Any) -> Any:
        from vllm_mtpc.v1.proposer import Proposer

        drafter = getattr(self.model_runner, "drafter", None)
        if isinstance(drafter, Proposer):
            drafter.time_steps(self.model_runner)
        return original(self, *others, **named)  # which seeds random numbers

    worker.compile_or_warm_up_model = compile_or_warm_up_model
