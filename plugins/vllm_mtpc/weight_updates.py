"""Rejects updates of a drafter's weights in a running server, which vLLM offers for reinforcement learning."""

from __future__ import annotations

import functools
import sys
from typing import Any

from mtpc.errors import MTPCError

FIX = "restart the server with the new drafter"


def install(base: Any) -> None:
    """Wrap ``WeightTransferEngine.set_weight_update_target``, which vLLM calls before it changes anything.

    Args:
        base: vLLM's module ``vllm.distributed.weight_transfer.base``.
    """
    engine = base.WeightTransferEngine
    original = engine.set_weight_update_target

    @functools.wraps(original)
    def set_weight_update_target(self: Any, model: Any, *others: Any, **named: Any) -> None:
        ours = sys.modules.get("vllm_mtpc.model")  # loaded where a drafter of this project is
        if ours is not None and isinstance(model, ours.DrafterForCausalLM):
            raise MTPCError(f"the weights of {model.folder} cannot be updated in a running server: {FIX}.")
        original(self, model, *others, **named)

    engine.set_weight_update_target = set_weight_update_target
