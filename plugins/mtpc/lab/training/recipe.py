"""Interface between the trainer and a method: initial models, training data, losses and reported facts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.processes import Processes
from mtpc.lab.training.schedule import Schedule
from mtpc.methods.drafter import Drafter

Model = TypeVar("Model", bound=nn.Module)


class TrainingBatch(NamedTuple):
    """Training data of one update, for all models.

    Attributes:
        examples: Number of examples in all micro-batches, of all processes together.
        micro_batches: Examples that are computed at once. Each is made only when the trainer reaches it.
    """

    examples: int
    micro_batches: Iterable[Any]


class Recipe(ABC, Generic[Model]):
    """Training of one or several models on the same batches.

    `Trainer` calls ``models`` once, then ``weights`` and ``optimizers`` once for each model. In every update it calls
    ``share``, then ``losses`` for each model and micro-batch. It calls ``measure`` whenever it saves its state.

    Attributes:
        settings: Frozen dataclass of plain values with every setting of the training.
        save_every: Updates between two saved states.
    """

    settings: Any
    save_every: ClassVar[int] = 100

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """Learning rate schedule, which also sets the number of updates."""

    @abstractmethod
    def models(self) -> dict[str, Model]:
        """Return the initial models by name, on their device, in float32."""

    @abstractmethod
    def optimizers(self, model: Model) -> list[torch.optim.Optimizer]:
        """Return optimizers for all parameters of a model."""

    @abstractmethod
    def weights(self, model: Model) -> Tensor:
        """Return the weight of each loss, [n]. A drafter has one loss per draft position."""

    @abstractmethod
    def batch(self, update: int) -> TrainingBatch:
        """Return the batch of update 0, 1, ..., which depends only on the settings and the data."""

    def share(self, update: int, processes: Processes) -> TrainingBatch:
        """Return the part of a batch that this process computes: here every micro-batch in turn.

        Args:
            update: Number of the update.
            processes: All processes; their shares together are the batch.
        """
        batch = self.batch(update)
        return TrainingBatch(batch.examples, islice(batch.micro_batches, processes.rank, None, processes.count))

    @abstractmethod
    def losses(self, model: Model, micro_batch: Any) -> Tensor:
        """Return each loss summed over the examples of a micro-batch, [n]."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """Return plain values that identify the training data. They are compared when a training is resumed."""

    def identity(self, models: dict[str, Model]) -> dict[str, Any]:
        """Return what must be equal when a training is resumed, in addition to its settings and data."""
        return {}

    def notes(self) -> list[str]:
        """Return lines to print before the training starts."""
        return []

    def measure(self, model: Model) -> dict[str, float]:
        """Measure a model whenever the state is saved, and return figures by name."""
        return {}

    def facts(self, model: Model) -> dict[str, Any]:
        """Return facts for provenance.json, in addition to the settings and the data."""
        return {}


class DrafterRecipe(Recipe[Drafter]):
    """Training of drafters for one frozen target.

    Attributes:
        target: Frozen target, whose hidden states and distributions the drafters are trained on.
    """

    target: FrozenTarget

    def identity(self, models: dict[str, Drafter]) -> dict[str, Any]:
        """Return the digest of the target, and the method and configuration of each drafter."""
        drafters = {name: {"family": each.method.name, **each.config.model_dump()} for name, each in models.items()}
        return {"target_sha256": self.target.digest(), "drafters": drafters}
