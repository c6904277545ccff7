"""Initialization of draft layers from the target's last layers, or from a trained drafter."""

from __future__ import annotations

from typing import Any

import torch

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.autoregressive.layer import DraftLayers
from mtpc.autoregressive.part import AutoregressivePart
from mtpc.errors import MTPCError


@torch.no_grad()
def start_from_target(layer: AutoregressivePart, model: Any) -> None:
    """Copy the target's last decoder layers and final norm into draft layers.

    The input projection adds its two inputs. With a final norm, the first outputs are states that the target's output
    head can read. Where the target has experts, the draft layer gets an MLP with zero output.

    Args:
        layer: Draft layers to initialize, in place.
        model: Target, a causal language model of transformers.

    Raises:
        MTPCError: The target has fewer layers than the drafter.
    """
    assert isinstance(layer, DraftLayers)  # the only part that recipes train
    if len(layer.blocks) > len(model.model.layers):
        raise MTPCError(
            f"{len(layer.blocks)} draft layers cannot start from a target with {len(model.model.layers)} layers; "
            "train fewer draft layers."
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
    """Copy a trained autoregressive part into draft layers, which may be more.

    Missing layers are copied from the target's last layers, with output projections of zero. The first outputs thus
    equal those of the trained part.

    Args:
        layer: Draft layers to initialize, in place.
        trained: Autoregressive part to copy.
        model: Target, a causal language model of transformers.

    Raises:
        MTPCError: The layers differ in more than their number, or the trained part has more layers.
    """
    assert isinstance(layer, DraftLayers) and isinstance(trained, DraftLayers)
    shape = set(AutoregressiveConfig.model_fields) - {"num_hidden_layers"}
    more = len(layer.blocks) - len(trained.blocks)
    if layer.config.model_dump(include=shape) != trained.config.model_dump(include=shape) or more < 0:
        raise MTPCError(
            "the drafter to start from has layers of another shape than this training's, or more of them; "
            "name a drafter with the same layer sizes."
        )
    start_from_target(layer, model)
    copied = trained.state_dict()
    layer.load_state_dict({name: copied.get(name, weights) for name, weights in layer.state_dict().items()})
    for block in list(layer.blocks)[len(trained.blocks) :]:
        for projection in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            block.get_parameter(projection).zero_()
