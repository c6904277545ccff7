"""CUDA graphs on a CPU: a replay repeats what a captured call did to memory, without running its code again.

A replay reads and writes the tensors of the capture, with the shapes and constants of the capture.  A call that a real
graph would replay wrongly is therefore wrong here, too, and tests detect it:

- Between replays, memory that the capture allocated holds no valid number (`spoil`), except its declared output.
- A graph does not keep its inputs alive.  A replay fails if it reads an input that was freed.
- A capture refuses operations that wait for the device or take numbers from the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from tests.mtpc.parallel.trace import EMPTY

Made = TypeVar("Made")
NO_NUMBER = 0x7FFF  # of 16 bits: a NaN in every floating-point type, far outside of any index in every integer one
REFUSED = {"lift_fresh": "takes numbers from the host", "_local_scalar_dense": "waits for a value of the device"}


class Placed(NamedTuple):
    """Where a tensor lies."""

    storage: int
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]


class FakeGraph(TorchDispatchMode):
    """Captures one call (`capture`), then does the same again (`replay`).

    steps: operations that wrote, with their arguments, of this shape, and what they made.  own: storages that the
    capture allocated.  given: those that it was given.  declared: its output's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, list[Any], TreeSpec, list[Placed | None]]] = []
        self.own: dict[int, UntypedStorage] = {}
        self.given: dict[int, StorageWeakRef] = {}
        self.declared: set[int] = set()

    def capture(self, call: Callable[[], Made]) -> Made:
        """Of a call that has been made before.  What it returns is its output, which every replay writes."""
        with self:
            made = call()
        self._spoil()
        self.declared = {_storage(tensor)._cdata for tensor in _tensors(made)}
        return made

    @torch.no_grad()
    def replay(self) -> None:
        """Once more, with what lies in the buffers now."""
        for key in self.declared & self.own.keys():
            spoil(self.own[key])
        for func, arguments, shape, results in self.steps:
            args, kwargs = tree_unflatten(map(self._tensor, arguments), shape)
            for new, kept in zip(_tensors(func(*args, **kwargs)), results, strict=True):
                if kept is not None:
                    self._tensor(kept).copy_(new)
        self._spoil()

    def _spoil(self) -> None:
        """All that the capture allocated, but for what is declared."""
        for key, storage in self.own.items():
            if key not in self.declared:
                spoil(storage)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        reason = "has a shape that depends on values" if _shapeless(func, args) else None
        if name != "lift_fresh" or args[0].numel():
            reason = REFUSED.get(name, reason)
        if reason is not None:
            raise AssertionError(f"{name} {reason}: no graph can hold it")
        leaves, shape = tree_flatten((args, kwargs))
        arguments = list(map(self._placed, leaves))
        out = func(*args, **kwargs)
        made = _tensors(out)
        new = [not self._knows(tensor) for tensor in made]
        for tensor, is_new in zip(made, new, strict=True):
            if is_new:
                self.own[_storage(tensor)._cdata] = _storage(tensor)
                if name in EMPTY:
                    spoil(_storage(tensor))
        if name not in EMPTY and (any(new) or func._schema.is_mutable):
            results = [self._placed(tensor) if is_new else None for tensor, is_new in zip(made, new, strict=True)]
            self.steps.append((func, arguments, shape, results))
        return out

    def _knows(self, tensor: Tensor) -> bool:
        key = _storage(tensor)._cdata
        return key in self.own or key in self.given

    def _placed(self, value: Any) -> Any:
        """Where a tensor lies, of which nothing is kept unless the capture allocated it."""
        if not isinstance(value, Tensor):
            return value
        storage = _storage(value)
        if not self._knows(value):
            self.given[storage._cdata] = StorageWeakRef(storage)
        return Placed(storage._cdata, value.dtype, value.storage_offset(), value.shape, value.stride())

    def _tensor(self, value: Any) -> Any:
        """What lies there now."""
        if not isinstance(value, Placed):
            return value
        if not value.size.numel():
            return torch.empty(value.size, dtype=value.dtype)
        if value.storage in self.own:
            storage = self.own[value.storage]
        elif self.given[value.storage].expired():
            raise AssertionError(f"a graph reads memory of {tuple(value.size)} numbers that nobody holds any more")
        else:
            storage = UntypedStorage._new_with_weak_ptr(self.given[value.storage].cdata)
        return torch.empty(0, dtype=value.dtype).set_(storage, value.offset, value.size, value.stride)


def record(call: Callable[[], Made]) -> tuple[Callable[[], None], Made]:
    """Make a call to warm up, then capture it: what replays it, and its output."""
    call()
    graph = FakeGraph()
    made = graph.capture(call)
    return graph.replay, made


def spoil(storage: UntypedStorage) -> None:
    """Leave no number in it."""
    torch.empty(0, dtype=torch.uint8).set_(storage).fill_(NO_NUMBER & 0xFF)
    torch.empty(0, dtype=torch.int16).set_(storage, 0, (storage.nbytes() // 2,)).fill_(NO_NUMBER)


def _storage(tensor: Tensor) -> UntypedStorage:
    return tensor.untyped_storage()


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _shapeless(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether the shape of what an operation makes depends on values."""
    if func.overloadpacket.__name__ in ("index", "index_put", "index_put_"):
        return any(index.dtype in (torch.bool, torch.uint8) for index in _tensors(args[1]))
    return bool({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(func.tags))
