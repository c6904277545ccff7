"""What training starts from: the target's own last layer, not random weights."""

from __future__ import annotations

from typing import Any

import torch

from mtpc.serial.layer import SerialLayer


@torch.no_grad()
def start_from_target(layer: SerialLayer, model: Any) -> None:
    """Copy the target's last decoder layer and final norm; the projection passes both of its inputs through, added.

    The first outputs are then states that the target's output head understands.

    model: the target, a causal language model of transformers.
    """
    layer.block.load_state_dict(model.model.layers[-1].state_dict())
    for norm in (layer.final_layernorm, layer.hidden_layernorm):
        norm.load_state_dict(model.model.norm.state_dict())
    identity = torch.eye(layer.config.hidden_size)
    layer.input_proj.weight.copy_(torch.cat([identity, identity], 1))
