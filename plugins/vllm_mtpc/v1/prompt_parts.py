"""The token after a part of a prompt, where a step reads no more of it.

There vLLM 0.32 hands drafters the prompt's last token instead.  Their keys and values at the end of the part would be
those of another text, which every later draft of the request attends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def with_prompt_tokens(following: Tensor, requests: Sequence[Any], read: Sequence[int]) -> Tensor:
    """``next_token_ids`` of vLLM's ``propose``, int32 [B], with the prompt's own where more of it is still to come.

    requests: vLLM's, B.  read: how much of each will have been read after this step.  Nothing is changed in place.
    """
    parts = {
        row: request.prompt_token_ids[length]
        for row, (request, length) in enumerate(zip(requests, read, strict=True))
        if length < request.num_prompt_tokens and request.prompt_token_ids is not None
    }
    if not parts:
        return following
    rows = torch.tensor(list(parts), device=following.device)
    return following.index_put((rows,), torch.tensor(list(parts.values()), dtype=following.dtype, device=rows.device))
