"""What a computation costs on a device, counted on tensors without memory."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KERNELS = {"logsumexp": 9}  # of an operation that CUDA does in several
EMPTY = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")


class Trace(TorchDispatchMode):
    """Kernels that are launched, the bytes of the most tensors alive at once, and all tensors that were made.

    A view costs nothing; a sum in another type than its input's has this converted first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.peak = self.alive = 0
        self.made: list[Tensor] = []  # without memory; only their shapes and types are of interest
        self.sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        known = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))}
        new = [tensor for tensor in _tensors(out) if tensor.untyped_storage()._cdata not in known]
        name = func.overloadpacket.__name__
        if (new or name.endswith("_")) and name not in EMPTY:
            converts = kwargs.get("dtype") not in (None, args[0].dtype if isinstance(args[0], Tensor) else None)
            self.kernels += KERNELS.get(name, 1) + (name in ("sum", "cumsum") and converts)
        for tensor in new:
            storage = tensor.untyped_storage()
            if storage._cdata not in self.sizes:
                self.sizes[storage._cdata] = storage.nbytes()
                self.alive += storage.nbytes()
                self.peak = max(self.peak, self.alive)
                weakref.finalize(storage, self._freed, storage._cdata)
            self.made.append(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))
        return out

    def _freed(self, key: int) -> None:
        self.alive -= self.sizes.pop(key)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class ReducedPrecision(TorchDispatchMode):
    """Products as a GPU makes them in TF32: of factors that are rounded to 10 bits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm"):
            args = tuple(_rounded(each) if isinstance(each, Tensor) else each for each in args)
        return func(*args, **(kwargs or {}))


def _rounded(tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    return ((tensor.contiguous().view(torch.int32) + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)
