"""What training starts from: the target's own last layers, not random weights."""

from __future__ import annotations

from typing import Any

import torch

from mtpc.serial.layer import SerialLayer


@torch.no_grad()
def start_from_target(layer: SerialLayer, model: Any) -> None:
    """Copy the target's last decoder layers and final norm; the projection passes both of its inputs through, added.

    The first outputs are then states that the target's output head understands, where there is a norm at the end.

    model: the target, a causal language model of transformers.
    """
    last = model.model.layers[-len(layer.blocks) :]
    for block, source in zip(layer.blocks, last, strict=True):
        weights = source.state_dict()
        block.load_state_dict({name: weights[name] for name in block.state_dict()})
    if layer.config.normed:
        for norm in (layer.final_layernorm, layer.hidden_layernorm):
            norm.load_state_dict(model.model.norm.state_dict())
    else:
        layer.input_proj.bias.zero_()
    identity = torch.eye(layer.config.hidden_size)
    layer.input_proj.weight.copy_(torch.cat([identity, identity], 1))
