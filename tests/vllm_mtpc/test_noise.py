"""Noise of the V1 runner: seeded requests repeat, others do not, and no generator is advanced."""

from __future__ import annotations

import torch

from vllm_mtpc.noise import draft_noise

POSITIONS = torch.tensor([3, 17, 3])


def seeded(seed: int) -> torch.Generator:
    """A request's generator."""
    return torch.Generator().manual_seed(seed)


def test_seeded_rows_depend_on_seed_and_position_alone() -> None:
    first = draft_noise(POSITIONS, 5, {1: seeded(4)})
    moved = draft_noise(POSITIONS.flip(0)[:2], 5, {1: seeded(4), 0: seeded(5)})
    assert torch.equal(first[1], moved[1])
    assert not torch.equal(first[0], draft_noise(POSITIONS, 5, {})[0])
    assert not torch.equal(moved[0], draft_noise(POSITIONS, 5, {0: seeded(4)})[0])
    assert not torch.equal(first[1], draft_noise(POSITIONS + 1, 5, {1: seeded(4)})[1])


def test_generators_are_not_advanced() -> None:
    generator = seeded(2**63 + 5)  # more than a signed integer holds
    state = generator.get_state()
    noise = draft_noise(POSITIONS, 5, {0: generator})
    assert torch.equal(generator.get_state(), state)
    assert noise.shape == (3, 5)
    assert ((noise >= 0) & (noise < 1)).all()


def test_every_bit_is_used() -> None:
    noise = draft_noise(POSITIONS, 400, {0: seeded(1)})
    assert noise.dtype == torch.float64
    steps = noise[0] * 2.0**53
    assert torch.equal(steps, steps.round())
    assert (steps.long() % 2).double().mean() > 0.4  # down to the last bit
