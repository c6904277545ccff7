"""Schema of a training state on disk. A file with other content is rejected before it is used."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor


def _check_dense(tensor: Tensor) -> Tensor:
    """Return the tensor. Raise ValueError if it is sparse, not on the CPU or not of a floating-point dtype."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or not tensor.is_floating_point():
        raise ValueError("expected a dense tensor of floating-point numbers")
    return tensor


Tensors = dict[str, Annotated[Tensor, AfterValidator(_check_dense)]]


class StateModel(BaseModel):
    """Strict base model: exactly these keys, exactly these types, finite numbers only."""

    model_config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


class OptimizerState(StateModel):
    """State of one optimizer.

    Attributes:
        state: Tensors of each parameter, by the number of the parameter.
        param_groups: Settings of the optimizer. They are never restored from a file.
    """

    state: dict[int, Tensors]
    param_groups: list[dict[str, Any]]


class TrainingProgress(StateModel):
    """Progress of a training.

    Attributes:
        update: Completed updates.
        seconds: Time that they took, in seconds.
    """

    update: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(ge=0)]


class LearnerState(StateModel):
    """State of one model in training.

    Attributes:
        weights: Parameters by name.
        optimizers: States of its optimizers, in their order.
        losses: Losses of each update.
        history: Measured figures, see `Recipe.measure`.
    """

    weights: Tensors
    optimizers: list[OptimizerState]
    losses: list[list[float]]
    history: list[dict[str, float]] = []


class TrainingState(TrainingProgress):
    """State of a whole training.

    Attributes:
        learners: State of each model, by its name.
    """

    learners: dict[str, LearnerState]
