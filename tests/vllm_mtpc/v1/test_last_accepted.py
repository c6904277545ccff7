"""Rows and positions of the last accepted tokens, as vLLM finds these."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from vllm_mtpc.v1.last_accepted import last_accepted


def test_the_last_accepted_tokens_of_a_step() -> None:
    positions, metadata = torch.tensor([4, 5, 6, 9, 10]), SimpleNamespace(query_start_loc=torch.tensor([0, 3, 5]))
    rows, found = last_accepted(positions, None, metadata)
    assert (rows.tolist(), found.tolist()) == ([2, 4], [6, 10])
    three = torch.stack([positions, positions + 20, positions + 40])  # as with M-RoPE
    rows, found = last_accepted(three, torch.tensor([1, 3]), metadata)
    assert (rows.tolist(), found.tolist()) == ([1, 3], [5, 9])
