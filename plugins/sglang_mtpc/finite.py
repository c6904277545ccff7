"""Logits of what cannot be drafted: SGLang takes infinite ones for a fault where SGLANG_ENABLE_ASYNC_ASSERT is set."""

from __future__ import annotations

from torch import Tensor

LEAST = -1e30  # so low that a softmax makes exactly 0 of it, at any temperature


def finite(logits: Tensor) -> Tensor:
    """The same, float32, with `LEAST` for -inf, in their place."""
    return logits.clamp_min_(LEAST)
