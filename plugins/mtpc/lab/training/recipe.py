"""What a method gives the trainer: where a training starts, what it learns from, and what it is told about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.schedule import Schedule
from mtpc.methods.drafter import Drafter

Model = TypeVar("Model", bound=nn.Module)


class TrainingBatch(NamedTuple):
    """What all models learn from in one update.

    examples: how many there are.  parts: those that are computed at once, each made when its turn comes.
    """

    examples: int
    micro_batches: Iterable[Any]


class Recipe(ABC, Generic[Model]):
    """How the models of one training are trained, side by side on the same batches.

    settings: a frozen dataclass of plain values, the whole of what can be chosen.
    """

    settings: Any
    save_every: ClassVar[int] = 100  # updates between two states on disk

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate, and with it the number of updates."""

    @abstractmethod
    def models(self) -> dict[str, Model]:
        """The models by their names, as they are before the first update, on their device, in float32."""

    @abstractmethod
    def optimizers(self, model: Model) -> list[torch.optim.Optimizer]:
        """The optimizers of all parameters of a model."""

    @abstractmethod
    def weights(self, model: Model) -> Tensor:
        """How much each loss counts, of each position for drafters: [n]."""

    @abstractmethod
    def batch(self, update: int) -> TrainingBatch:
        """What is learnt from in update 0, 1, ...: a function of the settings and the data."""

    @abstractmethod
    def losses(self, model: Model, micro_batch: Any) -> Tensor:
        """The sum over the examples of a part of each loss: [n]."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """What is learnt from, with its digest: plain values, compared when a training is taken up again."""

    def identity(self, models: dict[str, Model]) -> dict[str, Any]:
        """What a training is taken up again only with the same of, beside its settings and its data."""
        return {}

    def measure(self, model: Model) -> dict[str, float]:
        """What is measured of a model whenever a state is due, by names."""
        return {}

    def facts(self, model: Model) -> dict[str, Any]:
        """What provenance.json tells of the training of a model beside its settings and its data."""
        return {}


class DrafterRecipe(Recipe[Drafter]):
    """How drafters are trained for one frozen target, from which they learn."""

    target: FrozenTarget

    def identity(self, models: dict[str, Drafter]) -> dict[str, Any]:
        """The target, and what the drafters are."""
        drafters = {name: {"family": each.method.name, **each.config.model_dump()} for name, each in models.items()}
        return {"target_sha256": self.target.digest(), "drafters": drafters}
