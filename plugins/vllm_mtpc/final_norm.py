"""Applies the target's final norm to hidden states that vLLM returns before it.

Drafters read the target's states after its final norm, but a few of vLLM's models apply it in ``compute_logits``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook


class _NormsApplied(Exception):  # noqa: N818 - no error: it ends the computation of logits
    """The output head comes next."""


@torch.inference_mode()
def final_norm(target: Any, states: Tensor) -> Callable[[Tensor], Tensor]:
    """Find the norm that the target applies to its states while it computes logits.

    The logits are computed once, up to the output head, and the norms that run meanwhile are recorded.  The head itself
    may not run yet: with LoRA, vLLM's logits processor needs a batch.

    Args:
        target: vLLM's model of the target.
        states: Any states, [1, d], to compute logits of.

    Returns:
        A function that maps the states which the target returns, [..., d], to those after its final norm, [..., d].
        It is the identity for models that return them after the norm.
    """
    called: list[tuple[nn.Module, torch.dtype]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        name = type(module).__name__
        if "LogitsProcessor" in name:
            raise _NormsApplied
        if "Norm" in name:
            called.append((module, inputs[0].dtype))

    hook = register_module_forward_pre_hook(note)
    try:
        with suppress(_NormsApplied):
            target.compute_logits(states)
    finally:
        hook.remove()

    def normed(states: Tensor) -> Tensor:
        for norm, dtype in called:
            states = norm(states.to(dtype))
        return states

    return normed
