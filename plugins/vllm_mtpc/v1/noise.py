"""Noise for drafting on the V1 runner, whose requests carry generators instead of seeds."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mtpc.noise import counter_uniforms
from mtpc.to_device import copy_to_device


def draft_noise(positions: Tensor, size: int, generators: dict[int, Generator]) -> Tensor:
    """Uniforms in [0, 1), float64 [B, size].

    positions: int64 [B], of each request's last accepted token.  generators: of the rows whose requests have a
    seed.  Their noise is a function of seed and position: it repeats with the request whatever else is served,
    and does not advance the generator, which the target's own sampling owns and winds back.  Other rows draw from
    the default generator, as vLLM's own samplers do; its state, and so the draft, is the same on every rank.
    """
    noise = torch.rand(positions.shape[0], size, dtype=torch.float64, device=positions.device)
    if generators:
        seeded = [list(generators), [_signed(generator.initial_seed()) for generator in generators.values()]]
        rows, seeds = copy_to_device(torch.tensor(seeded), positions.device)
        noise[rows] = counter_uniforms(seeds, positions[rows], size)
    return noise


def _signed(seed: int) -> int:
    """An unsigned 64-bit seed as the signed integer of the same bits."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
