"""Linear layers with int8 weights, for a CPU that multiplies them by few rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK = 32  # torch's kernel has no loop for a rest: with other sizes it reads past the end
PART = 4096  # rows that are rounded at a time: a whole output head in float32 is large


class Int8Linear(nn.Module):
    """A linear layer without a bias whose weights [out, in] are rounded to int8, with one scale a row.

    Activations stay bfloat16.
    A few rows of activations cost what it costs to read the weights, and these are half as many bytes.
    Many rows cost more than in bfloat16 (from 5 on, on an AMD EPYC).
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        assert fits(weight)
        parts = [_rounded(part.float()) for part in weight.detach().split(PART)]
        self.register_buffer("weight", torch.cat([rounded for rounded, _ in parts]))
        self.register_buffer("scale", torch.cat([scale for _, scale in parts]).to(torch.bfloat16))

    def forward(self, features: Tensor) -> Tensor:
        """bfloat16 [B, in] -> bfloat16 [B, out]."""
        return torch._weight_int8pack_mm(features, self.weight, self.scale)


def _rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Int8 rows, and the scale of each, float32 [out]: weight float32 [out, in]."""
    scale = (weight.abs().amax(1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    return (weight / scale[:, None]).round().to(torch.int8), scale


def fits(weight: Tensor) -> bool:
    """Whether weights can be int8: sizes that are multiples of `BLOCK`."""
    return all(size % BLOCK == 0 for size in weight.shape)


def use_int8_weights(module: nn.Module) -> None:
    """Replace every `nn.Linear` below ``module`` that has no bias and `fits`, in place."""
    for name, child in module.named_children():
        bias: Tensor | None = child.bias if isinstance(child, nn.Linear) else None
        if isinstance(child, nn.Linear) and bias is None and fits(child.weight):
            setattr(module, name, Int8Linear(child.weight))
        else:
            use_int8_weights(child)
