"""Keeps a drafter's tensors while vLLM sleeps at level 2, or rejects sleep mode.

vLLM then discards everything that was allocated while it loaded the models.  Of that it saves only the buffers of the
target and of the draft model, and parameters that the user names.  It restores them in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from mtpc.errors import MTPCError
from vllm_mtpc.additional_config import SECTION

PACKAGES = ("mtpc", "vllm_mtpc")


def keep_while_asleep(model: nn.Module, *holders: Any) -> None:
    """Make the tensors of some objects buffers of the draft model as well, once everything is loaded.

    Args:
        model: The draft model, as vLLM knows it.
        holders: Objects of this project, tensors, or collections of them.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    for number, tensor in enumerate(_tensors(holders, set())):
        if (storage := tensor.untyped_storage().data_ptr()) not in known:
            known.add(storage)
            model.register_buffer(f"kept_{number}", tensor, persistent=False)


def check_languages(vllm_config: Any) -> None:
    """Reject sleep mode where requests choose draft vocabularies on the device.

    Their metrics are read in a thread, also while vLLM sleeps and their memory is gone.

    Args:
        vllm_config: vLLM's ``VllmConfig``.

    Raises:
        MTPCError: Sleep mode is on.
    """
    if vllm_config.model_config.enable_sleep_mode:
        raise MTPCError(
            "--enable-sleep-mode does not fit draft vocabularies by language on Model Runner V2: choose one language, "
            f"or 'none', in {SECTION!r} of additional-config."
        )


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
