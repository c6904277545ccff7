"""Circuit windows with random weights, and what they are asked."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.parallel.circuit_part import CircuitPart
from tests.support.tiny_models import make_part

VOCAB, HIDDEN, WINDOW = 7, 12, 6


def make_circuit_part(
    circuit: str, leaves: str = "shared", window: int = WINDOW, token_input: bool = False
) -> CircuitPart:
    """Every part that a head can have, rank 3."""
    features = {"leaf_features": 5, "component_features": 4, "sum_features": 6, "trunk_size": 8}
    return make_part(circuit, window, 3, HIDDEN, VOCAB, leaves=leaves, token_input=token_input, **features)


def inputs(rows: int, window: CircuitPart) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, tokens, temperatures and noise."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, HIDDEN, generator=generator)
    token = torch.randint(VOCAB, (rows,), generator=generator)
    temperature = torch.tensor([1.0, 0.5, 0.0, 2.0, 0.0])[torch.arange(rows) % 5]
    return hidden, token, temperature, torch.rand(rows, window.max_drafts, generator=generator)
