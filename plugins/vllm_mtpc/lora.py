"""The target's modules as drafters use them: without the LoRA adapters of requests."""

from __future__ import annotations

from typing import Any


def without_lora(module: Any) -> Any:
    """Return the module that vLLM has wrapped for LoRA, or the module itself.

    A wrapped module only runs on the tokens of the target's step, for which vLLM has set the adapters.

    Args:
        module: A module of the target.
    """
    return getattr(module, "base_layer", module)
