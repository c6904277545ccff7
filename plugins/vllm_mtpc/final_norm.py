"""Drafters read the target's states after its final norm; a few of vLLM's models hand them over before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook


@torch.inference_mode()
def final_norm(target: Any, states: Tensor) -> Callable[[Tensor], Tensor]:
    """What the states [..., d] that a target of vLLM returns must go through to be those after its final norm.

    It is what the target's own logits go through: these are made once, on all ranks, of ``states``, any [1, d].
    """
    called: list[tuple[nn.Module, torch.dtype]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if "Norm" in type(module).__name__:
            called.append((module, inputs[0].dtype))

    hook = register_module_forward_pre_hook(note)
    try:
        target.compute_logits(states)
    finally:
        hook.remove()

    def normed(states: Tensor) -> Tensor:
        for norm, dtype in called:
            states = norm(states.to(dtype))
        return states

    return normed
