"""MurmurHash3 of seed, position and token: the random numbers of requests with a seed.

It is the 32-bit hash that SGLang computes on a GPU, over 16 bytes: low and high half of the seed, position, token.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
BYTES = 16


def define_operator() -> None:
    """Register ``sgl_kernel::murmur_hash32_cpu``; a second call does nothing."""
    name = "sgl_kernel::murmur_hash32_cpu"
    if not hasattr(torch.ops.sgl_kernel, "murmur_hash32_cpu"):
        torch.library.define(name, "(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor")
        torch.library.impl(name, "CPU", murmur_hash32)


def murmur_hash32(seed: Tensor, positions: Tensor, col_indices: Tensor) -> Tensor:
    """Return hashes, uint32 [B, V], of seed int64 [B], positions int [B] and tokens ``col_indices`` int [V]."""
    seed, columns = seed.to(torch.int64)[:, None], col_indices.to(torch.int64)[None, :]
    state = torch.zeros_like(seed)
    for key in (seed & WORD, (seed >> 32) & WORD, positions.to(torch.int64)[:, None] & WORD, columns & WORD):
        state = _mix(state, key)
    return _finish(state ^ BYTES).to(torch.uint32)


def _mix(state: Tensor, key: Tensor) -> Tensor:
    key = _rotate((key * 0xCC9E2D51) & WORD, 15)
    state = _rotate(state ^ ((key * 0x1B873593) & WORD), 13)
    return (state * 5 + 0xE6546B64) & WORD


def _finish(state: Tensor) -> Tensor:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = ((state ^ (state >> shift)) * factor) & WORD
    return state ^ (state >> 16)


def _rotate(word: Tensor, count: int) -> Tensor:
    return ((word << count) | (word >> (32 - count))) & WORD
