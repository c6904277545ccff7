"""Keeps a drafter's tensors while vLLM sleeps at level 2.

vLLM then discards everything that was allocated while it loaded the models.  Of that it saves only the buffers of the
target and of the draft model, and parameters that the user names.  It restores them in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

PACKAGES = ("mtpc", "vllm_mtpc")


def keep_while_asleep(model: nn.Module, *holders: Any) -> None:
    """Make the tensors of some objects buffers of the draft model as well, once everything is loaded.

    Args:
        model: The draft model, as vLLM knows it.
        holders: Objects of this project, tensors, or collections of them.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    for number, tensor in enumerate(_tensors(holders, set())):
        if tensor.untyped_storage().data_ptr() not in known:
            model.register_buffer(f"kept_{number}", tensor, persistent=False)


def _tensors(held: Any, seen: set[int]) -> Iterator[Tensor]:
    """Yield the tensors that an object of this project holds, and those of the objects that it holds."""
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, Tensor):
        yield held
        return
    if isinstance(held, dict):
        inner = list(held.values())
    elif isinstance(held, tuple | list | set):
        inner = list(held)
    elif type(held).__module__.partition(".")[0] in PACKAGES:
        inner = list(getattr(held, "__dict__", {}).values())
    else:
        return
    for one in inner:
        yield from _tensors(one, seen)
