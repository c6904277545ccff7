"""Kernels that process accepted tokens.  Names and arguments are those of SGLang's kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """Copy each request's last accepted token to bonus_tokens.

    Args:
        accept_tokens: [B * accept_stride], accepted tokens first in each request's part.
        accept_lens: [B], at least 1.
        bonus_tokens: Output, [B].
        accept_stride: Tokens of each request's part.
    """
    last = torch.arange(len(accept_lens)) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.flatten()[last])


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """Copy the slots of accepted tokens to the front of accept_out_cache_loc.

    Args:
        accept_index: Indices into out_cache_loc, of any shape; -1 for no token.
        out_cache_loc: Slots of all verified tokens.
        accept_out_cache_loc: Output.
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
    """Shift each request's tokens one to the left and append its new token, in place.

    Args:
        input_ids: Tokens of all requests, [tokens].
        extend_start_loc: Start of each request's part, [B].
        extend_seq_lens: Length of each request's part, [B].
        topk_index: New token of each request, [B].
        select_index: Index of each new token in input_ids, [B]; None: the last one of the part.
    """
    parts = zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), topk_index.flatten().tolist(), strict=True)
    for index, (start, length, token) in enumerate(parts):
        if length > 0:
            end = start + length
            input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
            input_ids[end - 1 if select_index is None else int(select_index[index])] = token
