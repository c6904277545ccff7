"""Linear layers with int8 weights, for a CPU that multiplies them by one row at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK = 32  # torch's kernel has no loop for a rest: with other sizes it reads past the end


class Int8Linear(nn.Module):
    """A linear layer whose weights are rounded to int8, with one scale a row; activations stay bfloat16.

    One row of activations costs what it costs to read the weights, and these are half as many bytes.
    Many rows cost more than in bfloat16 (from 8 on, on an AMD EPYC).
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        assert fits(linear)
        weight = linear.weight.detach().float()
        scale = (weight.abs().amax(1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(torch.bfloat16))

    def forward(self, features: Tensor) -> Tensor:
        """bfloat16 [B, in] -> bfloat16 [B, out]."""
        return torch._weight_int8pack_mm(features, self.weight, self.scale)


def fits(linear: nn.Linear) -> bool:
    """Whether a layer can have int8 weights: no bias, and sizes that are multiples of `BLOCK`."""
    bias: Tensor | None = linear.bias
    return bias is None and linear.in_features % BLOCK == 0 and linear.out_features % BLOCK == 0


def use_int8_weights(module: nn.Module) -> None:
    """Replace every `nn.Linear` below ``module`` that `fits`, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and fits(child):
            setattr(module, name, Int8Linear(child))
        else:
            use_int8_weights(child)
