"""A mend for vLLM's V1 runner on a CPU: a seeded request whose prompt is read in parts ends the engine.

Seen in vLLM 0.32, where drafts play no part in it: what is sampled before a prompt is read to its end is discarded,
and the request's generator wound back, which generators of a CPU cannot do.  Here such rows sample without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def install(runner: Any) -> None:
    """Wrap ``GPUModelRunner.sample_tokens`` of the module ``runner``, if this CPU shows the fault."""
    if not _can_wind_back():
        runner.GPUModelRunner.sample_tokens = _sparing(runner.GPUModelRunner.sample_tokens)


def _can_wind_back() -> bool:
    try:
        torch.Generator().set_offset(0)
    except RuntimeError:
        return False
    return True


def _sparing(original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, out of whose sight the generators of rows are kept whose tokens will be discarded."""

    @functools.wraps(original)
    def sample_tokens(self: Any, *given: Any, **named: Any) -> Any:
        generators, discarded = self.input_batch.generators, self.discard_request_mask.np
        spared = {row: generators.pop(row) for row in list(generators) if discarded[row]}
        try:
            return original(self, *given, **named)
        finally:
            generators.update(spared)

    return sample_tokens
