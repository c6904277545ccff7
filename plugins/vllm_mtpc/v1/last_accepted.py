"""Where each request of a batch stands, by what vLLM's V1 runner tells a proposer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def last_accepted(
    target_positions: Tensor, token_indices_to_sample: Tensor | None, common_attn_metadata: Any
) -> tuple[Tensor, Tensor]:
    """The row of each request's last accepted token among the scheduled ones, and its position: int64 [B] both.

    These are arguments of vLLM's ``propose``.  target_positions: [T]; with M-RoPE [3, T], of which the first counts.
    token_indices_to_sample: the rows; None: each request's last scheduled token.
    """
    rows = token_indices_to_sample
    if rows is None:
        rows = common_attn_metadata.query_start_loc[1:] - 1
    return rows, target_positions.view(-1, target_positions.shape[-1])[0, rows]


def next_tokens(
    sampled: Tensor, requests: Mapping[str, Any], batch: Any, unread: Tensor, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """What vLLM's ``prepare_next_token_ids_padded`` returns, on the host: in a quarter of the time for one request.

    The last token that the target has said to each request, where it said none its text's last one, int32 [B]; and how
    many it said, int32 [B].  sampled: int [B, K + 1], -1 for a token that was rejected.  requests: vLLM's, by name.
    batch: vLLM's, which these are of.  unread: bool [B], whose prompts are not read yet: what was sampled is nothing.
    """
    tokens, counts = [], []
    for row, (name, said, waits) in enumerate(zip(batch.req_ids, sampled.tolist(), unread.tolist(), strict=False)):
        valid = [] if waits else [token for token in said if 0 <= token < vocab_size]
        counts.append(len(valid))
        tokens.append(valid[-1] if valid else requests[name].get_token_id(int(batch.num_tokens_no_spec[row]) - 1))
    return torch.tensor(tokens, dtype=torch.int32), torch.tensor(counts, dtype=torch.int32)
