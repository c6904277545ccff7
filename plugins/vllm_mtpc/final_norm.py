"""Drafters read the target's states after its final norm; a few of vLLM's models hand them over before it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

# Their compute_logits applies the norm `model.norm`.
NORM_WITH_LOGITS = ("MiMoForCausalLM", "Step3p5ForCausalLM")


def final_norm(target: nn.Module) -> Callable[[Tensor], Tensor]:
    """What the states [..., d] that a target of vLLM returns must go through to be those after its final norm."""
    if any(kind.__name__ in NORM_WITH_LOGITS for kind in type(target).__mro__):
        return target.get_submodule("model.norm")
    return nn.Identity()
