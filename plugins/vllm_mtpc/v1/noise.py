"""Noise for drafting on the V1 runner, where requests have generators instead of seeds."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mtpc.noise import counter_uniforms
from mtpc.to_device import copy_to_device


def draft_noise(positions: Tensor, size: int, generators: dict[int, Generator]) -> Tensor:
    """Draw the noise of a step.

    The noise of a seeded request is a function of seed and position.  It does not depend on the batch and does not
    advance the generator, which belongs to the target's sampling.  Other requests use torch's default generator, as
    vLLM's samplers do.  Its state, and so the draft, is the same on every rank.

    Args:
        positions: int64 [B], position of each request's last accepted token.
        size: Uniforms per request.
        generators: Generators of the requests with a seed, by their index in the batch.

    Returns:
        Uniforms in [0, 1), float64 [B, size].
    """
    noise = torch.rand(positions.shape[0], size, dtype=torch.float64, device=positions.device)
    if generators:
        seeded = [list(generators), [_signed(generator.initial_seed()) for generator in generators.values()]]
        rows, seeds = copy_to_device(torch.tensor(seeded), positions.device)
        noise[rows] = counter_uniforms(seeds, positions[rows], size)
    return noise


def _signed(seed: int) -> int:
    """Return the signed integer with the bits of an unsigned 64-bit seed."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
