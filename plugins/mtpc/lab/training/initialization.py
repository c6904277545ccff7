"""What training starts from: the target's own last layers, or those of a drafter, not random weights."""

from __future__ import annotations

from typing import Any

import torch

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.autoregressive.layer import DraftLayers
from mtpc.autoregressive.part import AutoregressivePart
from mtpc.errors import MTPCError


@torch.no_grad()
def start_from_target(layer: AutoregressivePart, model: Any) -> None:
    """Copy the target's last decoder layers and final norm; the projection passes both of its inputs through, added.

    The first outputs are then states that the target's output head understands, where there is a norm at the end.
    In place of experts there is an MLP that adds nothing yet.

    model: the target, a causal language model of transformers.

    Errors: `MTPCError` where it has fewer layers.
    """
    assert isinstance(layer, DraftLayers)  # what there are recipes for
    if len(layer.blocks) > len(model.model.layers):
        raise MTPCError(
            f"{len(layer.blocks)} draft layers start from the last ones of the target, which has "
            f"{len(model.model.layers)} only."
        )
    last = model.model.layers[-len(layer.blocks) :]
    for block, source in zip(layer.blocks, last, strict=True):
        weights = source.state_dict()
        if hasattr(source.mlp, "experts"):
            block.get_parameter("mlp.down_proj.weight").zero_()
            weights |= block.get_submodule("mlp").state_dict(prefix="mlp.")
        block.load_state_dict({name: weights[name] for name in block.state_dict()})
    if layer.config.normed:
        for norm in (layer.final_layernorm, layer.hidden_layernorm):
            norm.load_state_dict(model.model.norm.state_dict())
    else:
        layer.input_proj.bias.zero_()
    identity = torch.eye(layer.config.hidden_size)
    layer.input_proj.weight.copy_(torch.cat([identity, identity], 1))


@torch.no_grad()
def start_from_layers(layer: AutoregressivePart, trained: AutoregressivePart, model: Any) -> None:
    """Copy an autoregressive part that is trained; layers that it lacks are the target's last ones, and change nothing yet.

    The first outputs are then those of the trained one, whatever the number of layers: what the others would add to the
    state is projected to zero until their output projections have learnt something.

    Errors: `MTPCError` where the layers differ in more than their number, or the trained ones are more.
    """
    assert isinstance(layer, DraftLayers) and isinstance(trained, DraftLayers)
    kind = set(AutoregressiveConfig.model_fields) - {"num_hidden_layers"}
    more = len(layer.blocks) - len(trained.blocks)
    if layer.config.model_dump(include=kind) != trained.config.model_dump(include=kind) or more < 0:
        raise MTPCError("the drafter to start from has other layers than this training's, or more of them.")
    start_from_target(layer, model)
    found = trained.state_dict()
    layer.load_state_dict({name: found.get(name, weights) for name, weights in layer.state_dict().items()})
    for block in list(layer.blocks)[len(trained.blocks) :]:
        for projection in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            block.get_parameter(projection).zero_()
