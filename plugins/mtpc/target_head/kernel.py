"""A Triton kernel for logits of a few rows of states, each with its request's draft vocabulary."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_ROWS = 16  # states at most: the smallest tile that a GPU multiplies
BLOCK, COLUMNS_AT_ONCE = 32, 128  # head rows of one program, and how many of their numbers it reads at a time


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
    inside = (batch < count) & (columns < size)
    number = tl.load(numbers + batch, mask=batch < count, other=0)
    allowed = tl.load(held + number * size + columns, mask=inside, other=0)
    used = tl.max(allowed, 0)[None, :] > 0
    sums = tl.zeros((tile, block), tl.float32)
    if tl.max(tl.max(allowed, 0), 0) > 0:
        first = columns.to(tl.int64) * width
        for start in range(0, width, step):
            part = start + tl.arange(0, step)
            across, down = part[None, :], part[:, None]
            state = tl.load(states + batch * width + across, mask=(batch < count) & (across < width), other=0.0)
            row = tl.load(rows + first + down, mask=used & (down < width), other=0.0)
            sums = tl.dot(state, row, sums, input_precision="ieee")
    value = tl.where(allowed > 0, sums, float("-inf")).to(logits.dtype.element_ty)
    tl.store(logits + batch * size + columns, value, mask=inside)


def logits_by_vocabulary(states: Tensor, rows: Tensor, held: Tensor, numbers: Tensor) -> Tensor:
    """Compute `mtpc.target_head.union.logits_by_vocabulary` on a GPU.

    Head rows that no request may draft are skipped; every other row is read once.

    Args:
        states: Hidden states in the dtype of ``rows``, [n, d], n at most `MAX_ROWS`.
        rows: Output head rows, [m, d].
        held: Which vocabulary contains the token of which row, bool [L, m].
        numbers: Draft vocabulary of each state, int64 [n].

    Returns:
        Logits [n, m]; -inf for a token outside the request's draft vocabulary.
    """
    logits = states.new_empty(len(states), len(rows))
    _logits[(triton.cdiv(len(rows), BLOCK),)](
        states.contiguous(), rows, held.view(torch.uint8), numbers, logits,
        len(states), len(rows), rows.shape[1], MAX_ROWS, BLOCK, COLUMNS_AT_ONCE,
    )  # fmt: skip
    return logits
