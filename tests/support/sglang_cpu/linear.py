"""Linear layers of SGLang with weights laid out for the processor, as in SGLang's CPU kernels.

``torch.nn.functional.linear`` rearranges the weight in every call.  With the few tokens of a decoding step, this takes
longer than the product, and as long for one token as for eight.  Measured costs of steps would be wrong.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

PACKED = "_sglang_cpu_packed"


def install(module: Any) -> None:
    """Wrap two methods of ``UnquantizedLinearMethod``, in the module that defines it."""
    if torch.cuda.is_available():
        return
    method = module.UnquantizedLinearMethod
    method.process_weights_after_loading = _pack(method.process_weights_after_loading)
    method.apply = _multiply(method.apply)


def fits(weight: Tensor) -> bool:
    """Return whether oneDNN multiplies with a weight of this dtype on this processor."""
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def _pack(original: Any) -> Any:
    @functools.wraps(original)
    def process_weights_after_loading(self: Any, layer: Any) -> None:
        original(self, layer)
        if fits(layer.weight):
            setattr(layer, PACKED, torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None))

    return process_weights_after_loading


def _multiply(original: Any) -> Any:
    @functools.wraps(original)
    def apply(self: Any, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        packed = getattr(layer, PACKED, None)
        if packed is None or x.dtype != layer.weight.dtype:
            return original(self, layer, x, bias)
        return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")

    return apply
