"""Wider MLPs that compute the same function: a trained Llama as the start of a larger one."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from mtpc.errors import MTPCError

MLP_WEIGHTS = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")


@torch.no_grad()
def widen_mlps(narrow: PreTrainedModel, wide: PreTrainedModel) -> None:
    """Copy ``narrow`` into ``wide``, whose MLPs have more units and which is otherwise of the same shape.

    The units that ``narrow`` lacks keep the random input weights of ``wide`` and get zero output weights: the logits of
    both models are equal, and the new units learn from the first step on (the function-preserving start of Net2Net,
    Chen et al. 2016, with zeros in the place of split units).

    Raises MTPCError where any other shape differs, or the MLPs of ``narrow`` are the wider ones.
    """
    target = wide.state_dict()
    for name, weight in narrow.state_dict().items():
        into = target.get(name)
        if into is None or (into.shape != weight.shape and not name.endswith(MLP_WEIGHTS)):
            raise MTPCError(f"Only the width of the MLPs may differ from the model to widen, but {name} does not fit.")
        rows, columns = weight.shape if weight.ndim == 2 else (len(weight), 1)
        if rows > into.shape[0] or columns > into.view(len(into), -1).shape[1]:
            raise MTPCError("The MLPs of the model to widen are already wider: give a larger --mlp-size.")
        if name.endswith("down_proj.weight"):
            into.zero_()
        into.view(len(into), -1)[:rows, :columns] = weight.view(rows, columns)
    if len(target) != len(narrow.state_dict()):
        raise MTPCError("The model to widen must have as many layers as the new one: widening adds no layer.")
