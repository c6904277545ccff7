"""Muon on a CPU: nothing is rounded to bfloat16, and its updates are `torch.optim.Muon`'s but for that rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.lab.training.optimizers import make_optimizers

RATE = 0.1


def polynomial(gradient: Tensor) -> Tensor:
    """The odd polynomial of Muon, applied five times to the singular values, by a decomposition in float64."""
    u, values, v = torch.linalg.svd(gradient.double(), full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    return u @ values.diag() @ v


def test_muon_orthogonalizes_in_float32() -> None:
    for shape in ((24, 40), (40, 24)):
        weight, theirs = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))
        gradient = torch.randn(shape)
        muon, _ = make_optimizers([weight], [torch.nn.Parameter(torch.zeros(2))], "muon", RATE, 0.0)
        torch_muon = torch.optim.Muon([theirs], lr=RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
        for parameter, optimizer in ((weight, muon), (theirs, torch_muon)):
            parameter.grad = gradient.clone()
            optimizer.step()
        expected = -RATE * 0.2 * max(shape) ** 0.5 * polynomial(gradient)
        torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-4, atol=1e-6)
        assert (theirs - weight).abs().max() > 1e-4  # what bfloat16 rounds
        assert (theirs - weight).norm() < 0.05 * weight.norm()
