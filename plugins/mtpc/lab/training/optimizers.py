"""The optimizers of our trainings: AdamW alone, or Muon with it, which needs fewer updates from scratch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtpc.lab.training.settings import OptimizerName
from mtpc.lab.training.state_schema import OptimizerState


def make_optimizers(
    matrices: Sequence[Tensor],
    others: Sequence[Tensor],
    kind: OptimizerName,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.95),
) -> list[torch.optim.Optimizer]:
    """AdamW for all parameters, or Muon for the matrices and AdamW for the others.

    Weights decay in the matrices only.
    """
    rest = {"params": others, "weight_decay": 0.0}
    if kind == "adamw":
        groups = [{"params": matrices, "weight_decay": weight_decay}, rest]
        return [torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=betas)]
    return [
        torch.optim.Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([rest], lr=learning_rate, betas=betas),
    ]


def restore_optimizers(
    optimizers: Sequence[torch.optim.Optimizer], saved: Sequence[OptimizerState], update: int
) -> None:
    """Go on from what as many optimizers remembered of the same parameters after so many updates.

    Errors: ValueError for what is not of these parameters.
    """
    for optimizer, one in zip(optimizers, saved, strict=True):
        optimizer.load_state_dict({"state": one.state, "param_groups": optimizer.state_dict()["param_groups"]})
        names = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.Adam) else {"momentum_buffer"}
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            found = optimizer.state.get(parameter)
            if not found:
                continue  # it had no gradient yet
            shapes = {name: torch.Size() if name == "step" else parameter.shape for name in names}
            if {name: tensor.shape for name, tensor in found.items()} != shapes:
                raise ValueError("it is of other parameters")
            if not 1 <= found.get("step", 1) <= update:
                raise ValueError("it is of another update")
