"""What follows from the tokens that verification accepted.  Names and arguments are those of SGLang's kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """Read each request's last accepted token into bonus_tokens [B].

    accept_tokens: [B * accept_stride], each request's tokens first in its part.  accept_lens: [B], at least 1.
    """
    last = torch.arange(len(accept_lens)) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.flatten()[last])


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """Write the slots of the accepted tokens to the front of accept_out_cache_loc.

    accept_index: indices into out_cache_loc, any shape, -1 where nothing was accepted.
    """
    chosen = out_cache_loc[accept_index[accept_index >= 0].long()]
    accept_out_cache_loc[: len(chosen)] = chosen


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens one to the left and put its new token last, or where select_index [B] says.

    input_ids: [tokens] of all requests; extend_start_loc and extend_seq_lens: [B], the part of each.
    """
    parts = zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), topk_index.flatten().tolist(), strict=True)
    for index, (start, length, token) in enumerate(parts):
        if length > 0:
            end = start + length
            input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
            input_ids[end - 1 if select_index is None else int(select_index[index])] = token
