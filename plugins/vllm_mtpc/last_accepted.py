"""Where each request of a batch stands, by what vLLM's V1 runner tells a proposer."""

from __future__ import annotations

from typing import Any

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
