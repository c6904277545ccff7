"""What the state of a training holds on disk, declared: whatever else a file holds is refused before it is used."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor


def _check_dense(tensor: Tensor) -> Tensor:
    """Errors: ValueError for a tensor that no weight and no optimizer of ours has."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or not tensor.is_floating_point():
        raise ValueError("a dense tensor of floating-point numbers was expected")
    return tensor


Tensors = dict[str, Annotated[Tensor, AfterValidator(_check_dense)]]


class StateModel(BaseModel):
    """Part of what a file holds: these keys, of these types, and numbers that are finite."""

    model_config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


class OptimizerState(StateModel):
    """What an optimizer remembers of its parameters, by their numbers; its settings are never taken from a file."""

    state: dict[int, Tensors]
    param_groups: list[dict[str, Any]]


class TrainingProgress(StateModel):
    """How far a training is: updates that are done, and the seconds that they took."""

    update: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(ge=0)]


class LearnerState(StateModel):
    """A model in training.  losses: of each update.  history: what was measured of it."""

    weights: Tensors
    optimizers: list[OptimizerState]
    losses: list[list[float]]
    history: list[dict[str, float]] = []


class TrainingState(TrainingProgress):
    """A training of models, by their names."""

    learners: dict[str, LearnerState]
