"""Rows and positions of the last accepted tokens, and the tokens themselves: as vLLM finds these."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from vllm.utils.cpu_triton_utils import _eagle_prepare_next_token_padded_kernel_impl as kernel_on_a_cpu
from vllm.v1.spec_decode import llm_base_proposer

from vllm_mtpc.v1.last_accepted import last_accepted, next_tokens

VOCABULARY = 50


def test_the_last_accepted_tokens_of_a_step() -> None:
    positions, metadata = torch.tensor([4, 5, 6, 9, 10]), SimpleNamespace(query_start_loc=torch.tensor([0, 3, 5]))
    rows, found = last_accepted(positions, None, metadata)
    assert (rows.tolist(), found.tolist()) == ([2, 4], [6, 10])
    three = torch.stack([positions, positions + 20, positions + 40])  # as with M-RoPE
    rows, found = last_accepted(three, torch.tensor([1, 3]), metadata)
    assert (rows.tolist(), found.tolist()) == ([1, 3], [5, 9])


@pytest.mark.parametrize("width", [1, 4, 11])
def test_next_tokens_are_vllms(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests of which any number of tokens was accepted, or whose prompts are not read yet."""
    monkeypatch.setattr(llm_base_proposer, "_eagle_prepare_next_token_padded", kernel_on_a_cpu)
    rows = 3 * width + 2
    sampled = torch.randint(VOCABULARY, (rows + 2, width), dtype=torch.int32)[:rows]
    accepted = torch.arange(rows) % (width + 1)
    sampled[torch.arange(width) >= accepted[:, None]] = -1
    sampled[-1] = VOCABULARY  # no token
    names = [str(row) for row in range(rows)]
    requests = {name: SimpleNamespace(get_token_id=lambda at, row=row: 3 * row + at) for row, name in enumerate(names)}
    batch = SimpleNamespace(
        req_ids=names, num_reqs=rows, num_tokens_no_spec=torch.arange(1, rows + 1).numpy(), vocab_size=VOCABULARY
    )
    unread = torch.rand(rows + 3) < 0.3
    spare = torch.zeros(rows, dtype=torch.int32)
    buffer = SimpleNamespace(np=spare.numpy(), gpu=spare, copy_to_gpu=lambda count: None)
    theirs = llm_base_proposer.SpecDecodeBaseProposer.prepare_next_token_ids_padded(
        SimpleNamespace(backup_next_token_ids=buffer), sampled, requests, batch, unread
    )
    ours = next_tokens(sampled, requests, batch, unread[:rows], VOCABULARY)
    assert [(one.dtype, one.tolist()) for one in ours] == [(one.dtype, one.tolist()) for one in theirs]
    assert ours[1].unique().tolist() == list(range(width + 1))
