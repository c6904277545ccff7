"""The optimizers of our trainings: AdamW alone, or Muon with it, which needs fewer updates from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["adamw", "muon"]


def make_optimizers(
    matrices: Sequence[Tensor],
    others: Sequence[Tensor],
    kind: Kind,
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
