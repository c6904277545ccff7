"""Counter-based uniform noise: equal keys give equal noise on every rank and in every replay of a CUDA graph."""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # of the SplitMix64 finalizer
_DRAFT_STREAM = 0x4D545043  # separates drafting from any other use of the same seeds
_BITS = 53  # significant bits of a float64


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Return the logical right shift of int64 (torch shifts arithmetically)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Apply the SplitMix64 finalizer (Steele et al. 2014), modulo 2^64 by int64 wrap-around."""
    x = (x ^ _shift_right(x, 30)) * _MULTIPLIERS[0]
    x = (x ^ _shift_right(x, 27)) * _MULTIPLIERS[1]
    return x ^ _shift_right(x, 31)


def counter_uniforms(seeds: Tensor, positions: Tensor, size: int) -> Tensor:
    """Return uniform noise that is a pure function of (seed, position, index).

    Only stateless tensor operations are used, so the function can be captured in a CUDA graph.

    Args:
        seeds: int64 [B], the seed of each request.
        positions: int64 [B], the position in each request's sequence.
        size: Numbers per request.

    Returns:
        float64 [B, size], in [0, 1).
    """
    keys = _mix(_mix(seeds + _DRAFT_STREAM) + positions * _GOLDEN)  # [B]
    index = torch.arange(1, size + 1, device=seeds.device, dtype=torch.int64)
    return _shift_right(_mix(keys[:, None] + index * _GOLDEN), 64 - _BITS).double() * 2.0**-_BITS
