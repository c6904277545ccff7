"""Kernels for slots of the KV cache: assignment to requests, and copies between slots.

``req_to_token`` int32 [requests, positions] holds the slot of every position of every request.  ``req_pool_indices``
int64 [B] are the rows of B requests in it.  Names and arguments are those of SGLang's kernels, which write into their
arguments.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def _ranges(rows: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the positions ``[start, end)`` of each row; empty if end is before start."""
    counts = (end - start).long().clamp(min=0)
    before = counts.cumsum(0) - counts
    within = torch.arange(int(counts.sum())) - before.repeat_interleave(counts)
    return rows.long().repeat_interleave(counts), start.long().repeat_interleave(counts) + within


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, pool_len: int
) -> None:
    """Assign the slots in out_cache_loc to positions ``[start, end)`` of each request, in order."""
    rows, columns = _ranges(req_pool_indices, start, end)
    req_to_token[rows, columns] = out_cache_loc[: len(rows)].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, pool_len: int
) -> None:
    """Copy the slots of positions ``[start, end)`` of each request to out_cache_loc, in order."""
    rows, columns = _ranges(req_pool_indices, start, end)
    out_cache_loc[: len(rows)] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Copy the slots of the topk * num_steps positions after each request's length to out_cache_loc."""
    end = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, end, out_cache_loc, pool_len)


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy slots src_loc to tgt_loc in every buffer; all are read before any is written.

    Args:
        data_ptrs: Address of each buffer, uint64 [buffers].
        strides: Bytes of a slot in each buffer, int64 [buffers].
        tgt_loc: Slots to write.
        src_loc: Slots to read.
    """
    if not len(tgt_loc):
        return
    source, target = src_loc.long(), tgt_loc.long()
    slots = 1 + max(int(source.max()), int(target.max()))
    for address, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (slots * size)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(slots, size)
        buffer[target] = buffer[source]
