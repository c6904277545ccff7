"""Function-preserving widening of MLPs, to start a larger Llama from a trained one."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from mtpc.errors import MTPCError

MLP_WEIGHTS = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")


@torch.no_grad()
def widen_mlps(narrow: PreTrainedModel, wide: PreTrainedModel) -> None:
    """Copy a model into one with wider MLPs, so that both compute the same logits.

    Additional units keep the random input weights of ``wide`` and get zero output weights. They receive gradients from
    the first update on. The method is Net2Net's (Chen et al. 2016), with zeros instead of split units.

    Args:
        narrow: Model to copy.
        wide: Model to fill, in place. It may differ from ``narrow`` in the width of its MLPs only.

    Raises:
        MTPCError: Another shape differs, or the MLPs of ``narrow`` are wider.
    """
    target = wide.state_dict()
    for name, weight in narrow.state_dict().items():
        into = target.get(name)
        if into is None or (into.shape != weight.shape and not name.endswith(MLP_WEIGHTS)):
            raise MTPCError(f"only the width of the MLPs may differ from the model to widen, but {name} does not fit.")
        rows, columns = weight.shape if weight.ndim == 2 else (len(weight), 1)
        if rows > into.shape[0] or columns > into.view(len(into), -1).shape[1]:
            raise MTPCError("the MLPs of the model to widen are already wider; give a larger --mlp-size.")
        if name.endswith("down_proj.weight"):
            into.zero_()
        into.view(len(into), -1)[:rows, :columns] = weight.view(rows, columns)
    if len(target) != len(narrow.state_dict()):
        raise MTPCError("the model to widen has fewer layers than the new one, but widening adds none; lower --layers.")
