"""Fix for vLLM's V1 runner on a CPU: a seeded request with chunked prefill ends the engine.

It occurs in vLLM 0.32, with and without draft tokens.  A token sampled after a chunk of a prompt is discarded, and vLLM
rewinds the request's generator, which CPU generators do not support.  Here such requests sample without a generator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def install(runner: Any) -> None:
    """Wrap ``GPUModelRunner.sample_tokens`` if this torch cannot rewind a CPU generator.

    Args:
        runner: vLLM's module ``vllm.v1.worker.gpu_model_runner``.
    """
    if not _can_set_offset():
        runner.GPUModelRunner.sample_tokens = _without_discarded_generators(runner.GPUModelRunner.sample_tokens)


def _can_set_offset() -> bool:
    try:
        torch.Generator().set_offset(0)
    except RuntimeError:
        return False
    return True


def _without_discarded_generators(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``original``: hide the generators of requests whose tokens will be discarded."""

    @functools.wraps(original)
    def sample_tokens(self: Any, *given: Any, **named: Any) -> Any:
        generators, discarded = self.input_batch.generators, self.discard_request_mask.np
        hidden = {row: generators.pop(row) for row in list(generators) if discarded[row]}
        try:
            return original(self, *given, **named)
        finally:
            generators.update(hidden)

    return sample_tokens
