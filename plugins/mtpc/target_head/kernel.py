"""Logits of a few rows of states, each of its own draft vocabulary, in one Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BATCH = 16  # rows of states at most: the smallest tile that a GPU multiplies
BLOCK, PART = 32, 128  # columns of one program, and how much of a row it reads at a time


@triton.jit
def _logits(  # type: ignore[no-untyped-def]
    states,
    rows,
    held,
    numbers,
    logits,
    count,
    size,
    width,
    tile: tl.constexpr,
    block: tl.constexpr,
    step: tl.constexpr,
) -> None:
    batch, columns = tl.arange(0, tile)[:, None], tl.program_id(0) * block + tl.arange(0, block)[None, :]
    there = (batch < count) & (columns < size)
    number = tl.load(numbers + batch, mask=batch < count, other=0)
    own = tl.load(held + number * size + columns, mask=there, other=0)
    used = tl.max(own, 0)[None, :] > 0
    sums = tl.zeros((tile, block), tl.float32)
    if tl.max(tl.max(own, 0), 0) > 0:
        first = columns.to(tl.int64) * width
        for start in range(0, width, step):
            part = start + tl.arange(0, step)
            across, down = part[None, :], part[:, None]
            state = tl.load(states + batch * width + across, mask=(batch < count) & (across < width), other=0.0)
            row = tl.load(rows + first + down, mask=used & (down < width), other=0.0)
            sums = tl.dot(state, row, sums, input_precision="ieee")
    value = tl.where(own > 0, sums, float("-inf")).to(logits.dtype.element_ty)
    tl.store(logits + batch * size + columns, value, mask=there)


def logits_of_own(states: Tensor, rows: Tensor, held: Tensor, numbers: Tensor) -> Tensor:
    """`mtpc.target_head.union.logits_of_own` for `BATCH` rows of states at most, which must be of the rows' type.

    A row that none of them may draft is not read, any other once.
    """
    logits = states.new_empty(len(states), len(rows))
    _logits[(triton.cdiv(len(rows), BLOCK),)](
        states.contiguous(), rows, held.view(torch.uint8), numbers, logits,
        len(states), len(rows), rows.shape[1], BATCH, BLOCK, PART,
    )  # fmt: skip
    return logits
