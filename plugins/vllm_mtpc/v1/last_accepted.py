"""Finds the last accepted token of each request in the arguments of vLLM's V1 proposer."""

from __future__ import annotations

from typing import Any

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
