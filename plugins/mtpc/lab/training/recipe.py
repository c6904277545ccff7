"""What a family gives the trainer: where a training starts, what it learns from, and what it is told about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.schedule import Schedule
from mtpc.methods.drafter import Drafter


class Batch(NamedTuple):
    """What all drafters learn from in one update.

    examples: how many there are.  parts: those that are computed at once, each made when its turn comes.
    """

    examples: int
    parts: Iterable[Any]


class Recipe(ABC):
    """How the drafters of one training are trained, side by side on the same batches of one frozen target.

    target: what is learnt from.  settings: a frozen dataclass of plain values, the whole of what can be chosen.  A
    training is taken up again only with the same of both.
    """

    target: FrozenTarget
    settings: Any
    save_every: ClassVar[int] = 100  # updates between two states on disk

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate, and with it the number of updates."""

    @abstractmethod
    def drafters(self) -> dict[str, Drafter]:
        """The drafters by their names, as they are before the first update, on the target's device, in float32."""

    @abstractmethod
    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """The optimizers of all parameters of a drafter."""

    @abstractmethod
    def weights(self, drafter: Drafter) -> Tensor:
        """How much the loss of each position counts: [n]."""

    @abstractmethod
    def batch(self, update: int) -> Batch:
        """What is learnt from in update 0, 1, ...: a function of the settings and the data."""

    @abstractmethod
    def losses(self, drafter: Drafter, part: Any) -> Tensor:
        """The sum over the examples of a part of the loss of each position: [n]."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """What is learnt from, with its digest: plain values, compared when a training is taken up again."""

    def facts(self, drafter: Drafter) -> dict[str, Any]:
        """What provenance.json tells of the training of a drafter beside its settings and its data."""
        return {}
