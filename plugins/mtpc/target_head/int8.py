"""Linear layers with int8 weights, for CPUs that multiply them by a few rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK = 32  # torch's kernel handles multiples of this only: with other sizes it reads past the end
ROWS_AT_ONCE = 4096  # rows that are rounded at a time: a whole output head in float32 needs too much memory


class Int8Linear(nn.Module):
    """A linear layer without a bias whose weights are rounded to int8, with one scale per output row.

    Activations stay bfloat16.
    With a few rows of activations, reading the weights takes most of the time, and int8 halves their bytes.
    With 5 or more rows, bfloat16 is faster (measured on an AMD EPYC).

    Args:
        weight: Weights to round, [out, in]; see `fits_int8`.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        assert fits_int8(weight)
        parts = [_rounded(part.float()) for part in weight.detach().split(ROWS_AT_ONCE)]
        self.register_buffer("weight", torch.cat([rounded for rounded, _ in parts]))
        self.register_buffer("scale", torch.cat([scale for _, scale in parts]).to(torch.bfloat16))

    def forward(self, features: Tensor) -> Tensor:
        """Map bfloat16 [B, in] to bfloat16 [B, out]."""
        return torch._weight_int8pack_mm(features, self.weight, self.scale)


def _rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 rows of float32 [out, in], and their scales, float32 [out]."""
    scale = (weight.abs().amax(1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    return (weight / scale[:, None]).round().to(torch.int8), scale


def fits_int8(weight: Tensor) -> bool:
    """Whether torch's kernel supports these sizes: all are multiples of `BLOCK`."""
    return all(size % BLOCK == 0 for size in weight.shape)


def use_int8_weights(module: nn.Module) -> None:
    """Replace every bias-free `nn.Linear` below a module whose sizes fit, in place.

    Args:
        module: The root module; it is not replaced itself.
    """
    for name, child in module.named_children():
        bias: Tensor | None = child.bias if isinstance(child, nn.Linear) else None
        if isinstance(child, nn.Linear) and bias is None and fits_int8(child.weight):
            setattr(module, name, Int8Linear(child.weight))
        else:
            use_int8_weights(child)
