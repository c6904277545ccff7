"""Optimizers for training: AdamW alone, or Muon for matrices, which needs fewer updates from scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mtpc.lab.training.settings import OptimizerName
from mtpc.lab.training.state_schema import OptimizerState


class MuonInFloat32(torch.optim.Muon):
    """Muon that orthogonalizes in float32.

    `torch.optim.Muon` does it in bfloat16, whose products take a hundred times as long on a CPU without AVX-512.
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters; see `torch.optim.Optimizer.step`."""
        with _NothingInBFloat16():
            loss: float | None = super().step(closure)
        return loss


class _NothingInBFloat16(TorchFunctionMode):
    """Copies a tensor where it would be rounded to bfloat16."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.bfloat16:
            return args[0].clone()
        return func(*args, **(kwargs or {}))


def make_optimizers(
    matrices: Sequence[Tensor],
    others: Sequence[Tensor],
    kind: OptimizerName,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.95),
) -> list[torch.optim.Optimizer]:
    """Return AdamW for all parameters, or Muon for the matrices and AdamW for the others.

    Args:
        matrices: Parameters of two dimensions. Weight decay applies to them only.
        others: All other parameters.
        kind: "adamw" or "muon".
        learning_rate: Initial learning rate. The trainer sets it anew in every update.
        weight_decay: Weight decay of the matrices.
        betas: Decay rates of AdamW's moments.

    Returns:
        One optimizer for "adamw", two for "muon".
    """
    undecayed = {"params": others, "weight_decay": 0.0}
    if kind == "adamw":
        groups = [{"params": matrices, "weight_decay": weight_decay}, undecayed]
        return [torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=betas)]
    muon = MuonInFloat32 if any(matrix.device.type == "cpu" for matrix in matrices) else torch.optim.Muon
    return [
        muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([undecayed], lr=learning_rate, betas=betas),
    ]


def restore_optimizers(
    optimizers: Sequence[torch.optim.Optimizer], saved: Sequence[OptimizerState], update: int
) -> None:
    """Restore the state of optimizers after ``update`` updates.

    Args:
        optimizers: New optimizers of the same parameters.
        saved: State of each optimizer, in the same order.
        update: Updates after which the state was saved.

    Raises:
        ValueError: A state belongs to other parameters or to another number of updates.
    """
    for optimizer, state in zip(optimizers, saved, strict=True):
        optimizer.load_state_dict({"state": state.state, "param_groups": optimizer.state_dict()["param_groups"]})
        names = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.Adam) else {"momentum_buffer"}
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            restored = optimizer.state.get(parameter)
            if not restored:
                continue  # it had no gradient yet
            shapes = {name: torch.Size() if name == "step" else parameter.shape for name in names}
            if {name: tensor.shape for name, tensor in restored.items()} != shapes:
                raise ValueError("the optimizer state belongs to other parameters")
            if not 1 <= restored.get("step", 1) <= update:
                raise ValueError("the optimizer state belongs to another update")
