"""Finite logits for excluded tokens: with SGLANG_ENABLE_ASYNC_ASSERT, SGLang fails on infinite logits."""

from __future__ import annotations

from torch import Tensor

LOWEST = -1e30  # softmax gives exactly 0 at any temperature


def finite(logits: Tensor) -> Tensor:
    """Replace -inf by `LOWEST` in float32 logits, in place, and return them."""
    return logits.clamp_min_(LOWEST)
