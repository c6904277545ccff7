"""Draws from a large vocabulary follow the stated distribution to its rarest token."""

from __future__ import annotations

import torch

from mtpc.draw import draw


def test_every_token_of_a_large_vocabulary_is_drawn_in_its_own_interval() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = (3.0 * torch.randn(49152, generator=generator)).softmax(-1)
    assert probs.dtype == torch.float32
    ends = probs.double().cumsum(-1)
    middles = (ends - probs.double() / 2) / ends[-1]
    asked = torch.randint(49152, (512,), generator=generator)
    assert torch.equal(draw(probs.expand(512, -1), middles[asked]), asked)
