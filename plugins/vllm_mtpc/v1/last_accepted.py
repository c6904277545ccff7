"""Finds the last accepted token and the next token of each request in the arguments of vLLM's V1 proposer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def last_accepted(
    target_positions: Tensor, token_indices_to_sample: Tensor | None, common_attn_metadata: Any
) -> tuple[Tensor, Tensor]:
    """Find each request's last accepted token, from arguments of vLLM's ``propose``.

    Args:
        target_positions: Positions of the scheduled tokens, [T]; with M-RoPE [3, T], of which the first row is used.
        token_indices_to_sample: Index of each request's last accepted token among the scheduled ones, [B]; None for
            each request's last scheduled token.
        common_attn_metadata: vLLM's ``CommonAttentionMetadata``.

    Returns:
        The index among the scheduled tokens and the position, int64 [B] both.
    """
    rows = token_indices_to_sample
    if rows is None:
        rows = common_attn_metadata.query_start_loc[1:] - 1
    return rows, target_positions.view(-1, target_positions.shape[-1])[0, rows]


def next_tokens(
    sampled: Tensor, requests: Mapping[str, Any], batch: Any, unread: Tensor, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Compute on the host what vLLM's ``prepare_next_token_ids_padded`` returns; four times as fast for one request.

    Args:
        sampled: int [B, K + 1], -1 for rejected tokens.
        requests: vLLM's requests by id.
        batch: vLLM's input batch.
        unread: bool [B], whether a part of the prompt is still to be prefilled; sampled tokens are then invalid.
        vocab_size: The target's.

    Returns:
        The last emitted token of each request, or its last known token if none was emitted; and the number of emitted
        tokens.  int32 [B] both.
    """
    tokens, counts = [], []
    rows = zip(batch.req_ids, sampled.tolist(), unread.tolist(), strict=False)
    for row, (name, emitted, is_unread) in enumerate(rows):
        valid = [] if is_unread else [token for token in emitted if 0 <= token < vocab_size]
        counts.append(len(valid))
        tokens.append(valid[-1] if valid else requests[name].get_token_id(int(batch.num_tokens_no_spec[row]) - 1))
    return torch.tensor(tokens, dtype=torch.int32), torch.tensor(counts, dtype=torch.int32)
