"""Uniform noise from counters: equal keys give equal noise, on every rank and in every replay of a graph."""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # of the SplitMix64 finaliser
_DRAFT_STREAM = 0x4D545043  # keeps drafting apart from any other use of the same seeds
_BITS = 53  # of a float64's fraction, with the leading one


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift of int64 (torch shifts arithmetically)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele et al. 2014), modulo 2^64 by int64 wrap-around."""
    x = (x ^ _shift_right(x, 30)) * _MULTIPLIERS[0]
    x = (x ^ _shift_right(x, 27)) * _MULTIPLIERS[1]
    return x ^ _shift_right(x, 31)


def counter_uniforms(seeds: Tensor, positions: Tensor, size: int) -> Tensor:
    """Uniforms in [0, 1), float64 [B, size], a pure function of (seed, position, index).

    seeds, positions: int64 [B], the request's seed and the position in its text.  Stateless plain tensor operations,
    so the function can be captured in a CUDA graph.
    """
    keys = _mix(_mix(seeds + _DRAFT_STREAM) + positions * _GOLDEN)  # [B]
    index = torch.arange(1, size + 1, device=seeds.device, dtype=torch.int64)
    return _shift_right(_mix(keys[:, None] + index * _GOLDEN), 64 - _BITS).double() * 2.0**-_BITS
