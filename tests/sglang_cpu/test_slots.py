"""Bookkeeping of slots against loops over requests and positions."""

from __future__ import annotations

import pytest
import torch

from sglang_cpu.slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
)

ROWS = torch.tensor([4, 0, 2, 5])
START = torch.tensor([3, 0, 7, 2], dtype=torch.int32)
END = torch.tensor([6, 1, 7, 1], dtype=torch.int32)  # the last two hold nothing


def pool() -> torch.Tensor:
    """A table of 6 requests and 10 positions with a number of its own in each place."""
    return torch.arange(60, dtype=torch.int32).view(6, 10)


def test_giving_slots() -> None:
    table, expected = pool(), pool()
    slots = torch.arange(100, 120)
    assign_req_to_token_pool_cpu(ROWS, table, START, END, slots, 10)
    following = iter(slots.tolist())
    for row, start, end in zip(ROWS.tolist(), START.tolist(), END.tolist(), strict=True):
        for position in range(start, end):
            expected[row, position] = next(following)
    assert torch.equal(table, expected)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_reading_slots(kind: torch.dtype) -> None:
    found = torch.full((6,), -1, dtype=kind)
    assign_extend_cache_locs_cpu(ROWS, pool(), START, END, found, 10)
    expected = [
        int(pool()[row, position])
        for row, start, end in zip(ROWS.tolist(), START.tolist(), END.tolist(), strict=True)
        for position in range(start, end)
    ]
    assert found.tolist() == [*expected, -1, -1]


def test_reading_the_slots_after_each_text() -> None:
    found = torch.empty(4 * 2 * 3, dtype=torch.int64)
    assign_draft_cache_locs_contiguous_cpu(ROWS, pool(), START.clamp(max=4), found, 10, 2, 3)
    expected = []
    for row, length in zip(ROWS.tolist(), START.clamp(max=4).tolist(), strict=True):
        expected += pool()[row, length : length + 6].tolist()
    assert found.tolist() == expected


def test_moving_contents() -> None:
    buffers = [torch.randn(8, 3, 2), torch.randint(0, 100, (8, 5), dtype=torch.int16)]
    expected = [buffer.clone() for buffer in buffers]
    source, target = torch.tensor([5, 1, 2]), torch.tensor([1, 2, 7])  # 1 and 2 are read and written
    for old, new in zip(buffers, expected, strict=True):
        for s, t in zip(source.tolist(), target.tolist(), strict=True):
            new[t] = old[s]
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    sizes = torch.tensor([buffer[0].nbytes for buffer in buffers])
    copy_all_layer_kv_cache_cpu(addresses, sizes, target, source)
    assert all(torch.equal(found, wanted) for found, wanted in zip(buffers, expected, strict=True))
    copy_all_layer_kv_cache_cpu(addresses, sizes, target[:0], source[:0])
    assert torch.equal(buffers[0], expected[0])
