"""The token that follows what was read of a prompt."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from vllm_mtpc.v1.prompt_parts import with_prompt_tokens

PROMPT = [5, 6, 7, 8]


def test_it_is_the_prompts_own_until_all_of_it_is_read() -> None:
    request = SimpleNamespace(prompt_token_ids=PROMPT, num_prompt_tokens=4)
    embedded = SimpleNamespace(prompt_token_ids=None, num_prompt_tokens=4)  # a prompt without tokens
    next_tokens = torch.tensor([8, 8, 3, 9, 1], dtype=torch.int32)
    found = with_prompt_tokens(next_tokens, [request, request, request, request, embedded], [1, 3, 4, 6, 2])
    assert found.dtype == torch.int32
    assert found.tolist() == [6, 8, 3, 9, 1]
    assert next_tokens.tolist() == [8, 8, 3, 9, 1]


def test_where_all_is_read_nothing_is_made() -> None:
    next_tokens = torch.tensor([3])
    request = SimpleNamespace(prompt_token_ids=PROMPT, num_prompt_tokens=4)
    assert with_prompt_tokens(next_tokens, [request], [5]) is next_tokens
