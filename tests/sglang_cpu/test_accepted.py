"""What follows from accepted tokens, against loops over requests."""

from __future__ import annotations

import pytest
import torch

from sglang_cpu.accepted import fill_accept_out_cache_loc_cpu, fill_bonus_tokens_cpu, rotate_input_ids_cpu


def test_the_last_accepted_token() -> None:
    tokens = torch.tensor([[7, 8, 9, 0], [4, 0, 0, 0], [1, 2, 3, 5]], dtype=torch.int32)
    counts, found = torch.tensor([3, 1, 4], dtype=torch.int32), torch.empty(3, dtype=torch.int64)
    fill_bonus_tokens_cpu(tokens.flatten(), counts, found, 4)
    assert found.tolist() == [row[count - 1] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


def test_the_slots_of_accepted_tokens() -> None:
    accepted = torch.tensor([[0, 2, -1], [3, -1, -1], [6, 7, 8]], dtype=torch.int32)
    slots, found = torch.arange(100, 109), torch.zeros(9, dtype=torch.int64)
    fill_accept_out_cache_loc_cpu(accepted, slots, found)
    expected = [int(slots[index]) for row in accepted.tolist() for index in row if index != -1]
    assert found.tolist() == [*expected, 0, 0, 0]


@pytest.mark.parametrize("chosen", [None, [1, 3, 8]])
def test_shifting_by_one(chosen: list[int] | None) -> None:
    tokens, starts, counts, new = list(range(10, 20)), [0, 4, 5], [4, 0, 5], [91, 92, 93]
    expected = list(tokens)
    for request, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for place in range(start, start + count - 1):
            expected[place] = tokens[place + 1]
        if count:
            expected[start + count - 1 if chosen is None else chosen[request]] = new[request]
    found = torch.tensor(tokens)
    select = None if chosen is None else torch.tensor(chosen)
    rotate_input_ids_cpu(found, torch.tensor(starts), torch.tensor(counts), torch.tensor(new)[:, None], select)
    assert found.tolist() == expected
