"""The optimizers that a layer is trained with: the paper's, and one that needs fewer updates from scratch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Kind = Literal["adamw", "muon"]


def make_optimizers(
    layer: nn.Module, kind: Kind, learning_rate: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """AdamW for everything (FastMTP paper, section 3.1), or Muon for the matrices and AdamW for norms and biases.

    Weights decay in the matrices only.
    """
    matrices = [p for p in layer.parameters() if p.ndim > 1]
    others = [p for p in layer.parameters() if p.ndim == 1]
    rest = {"params": others, "weight_decay": 0.0}
    betas = (0.9, 0.95)
    if kind == "adamw":
        groups = [{"params": matrices, "weight_decay": weight_decay}, rest]
        return [torch.optim.AdamW(groups, lr=learning_rate, betas=betas)]
    return [
        torch.optim.Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([rest], lr=learning_rate, betas=betas),
    ]
