"""Noise of the V1 runner: seeded requests repeat, others do not, and no generator is advanced."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from vllm_mtpc.noise import draft_noise, last_accepted

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


def test_the_last_accepted_tokens_of_a_step() -> None:
    positions, metadata = torch.tensor([4, 5, 6, 9, 10]), SimpleNamespace(query_start_loc=torch.tensor([0, 3, 5]))
    rows, found = last_accepted(positions, None, metadata)
    assert (rows.tolist(), found.tolist()) == ([2, 4], [6, 10])
    three = torch.stack([positions, positions + 20, positions + 40])  # as with M-RoPE
    rows, found = last_accepted(three, torch.tensor([1, 3]), metadata)
    assert (rows.tolist(), found.tolist()) == ([1, 3], [5, 9])
