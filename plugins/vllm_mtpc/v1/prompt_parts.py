"""Corrects the next token of chunked prefills.

After a chunk of a prompt vLLM 0.32 passes drafters the prompt's last token instead of the token after the chunk.  The
drafter's keys and values at the end of the chunk would be wrong, and every later draft of the request attends to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.to_device import copy_to_device


def with_prompt_tokens(following: Tensor, requests: Sequence[Any], read: Sequence[int]) -> Tensor:
    """Replace the next token of each request whose prompt is not completely prefilled.

    Args:
        following: ``next_token_ids`` of vLLM's ``propose``, int32 [B]; not changed.
        requests: vLLM's requests, B.
        read: Tokens of each request that are in the KV cache after this step.

    Returns:
        The next tokens, int32 [B].
    """
    chunk_ends = {
        row: request.prompt_token_ids[length]
        for row, (request, length) in enumerate(zip(requests, read, strict=True))
        if length < request.num_prompt_tokens and request.prompt_token_ids is not None
    }
    if not chunk_ends:
        return following
    rows, tokens = copy_to_device(torch.tensor([list(chunk_ends), list(chunk_ends.values())]), following.device)
    return following.index_put((rows,), tokens.to(following.dtype))
