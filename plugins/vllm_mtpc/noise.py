"""Noise for drafting on the V1 runner, whose requests carry generators instead of seeds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from mtpc.noise import counter_uniforms


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


def draft_noise(positions: Tensor, size: int, generators: dict[int, Generator]) -> Tensor:
    """float32 uniforms in [0, 1), [B, size].

    positions: int64 [B], of each request's last accepted token.  generators: of the rows whose requests have a
    seed.  Their noise is a function of seed and position: it repeats with the request whatever else is served,
    and does not advance the generator, which the target's own sampling owns and winds back.  Other rows draw from
    the default generator, as vLLM's own samplers do; its state, and so the draft, is the same on every rank.
    """
    noise = torch.rand(positions.shape[0], size, device=positions.device)
    if generators:
        rows = torch.tensor(list(generators), device=positions.device)
        seeds = torch.tensor([_signed(g.initial_seed()) for g in generators.values()], device=positions.device)
        noise[rows] = counter_uniforms(seeds, positions[rows], size)
    return noise


def _signed(seed: int) -> int:
    """An unsigned 64-bit seed as the signed integer of the same bits."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
