"""Noise of the V1 runner: seeded requests repeat, others do not, and no generator is advanced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.noise import counter_uniforms
from vllm_mtpc.v1.noise import draft_noise

POSITIONS = torch.tensor([3, 17, 3])


def seeded(seed: int) -> torch.Generator:
    """A request's generator."""
    return torch.Generator().manual_seed(seed)


def test_seeded_rows_have_the_noise_of_their_own_seed_and_position() -> None:
    """Whatever the order in which the requests' generators are listed; known answers are those of `mtpc.noise`."""
    positions = torch.tensor([3, 17, 40, 5])
    noise = draft_noise(positions, 5, {2: seeded(9), 0: seeded(2**63 + 5)})
    for row, seed in ((2, 9), (0, 5 - 2**63)):
        assert torch.equal(noise[row], counter_uniforms(torch.tensor([seed]), positions[row : row + 1], 5)[0])


def test_other_rows_draw_from_the_default_generator() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3, 5, dtype=torch.float64)
    for generators, rows in (({}, [0, 1, 2]), ({1: seeded(4)}, [0, 2])):
        torch.manual_seed(7)
        assert torch.equal(draft_noise(POSITIONS, 5, generators)[rows], expected[rows])


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


def test_seeds_and_rows_are_sent_at_once_and_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Any] = []
    to = Tensor.to
    monkeypatch.setattr(Tensor, "to", lambda self, *args, **named: copies.append(named) or to(self, *args, **named))
    monkeypatch.setattr(torch, "tensor", lambda data: torch.as_tensor(data))  # of the host, on no device
    draft_noise(POSITIONS.to("meta"), 5, {0: seeded(1), 2: seeded(3)})
    assert copies[1:] == [{"non_blocking": True}]
