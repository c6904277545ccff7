"""The one loop that trains: drafters of whatever method side by side on the same batches, or a target."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic

import torch
from rich.console import Console
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.lab.console import progress_on
from mtpc.lab.targets.frozen import training_dtype
from mtpc.lab.training.optimizers import restore_optimizers
from mtpc.lab.training.recipe import Model, Recipe, TrainingBatch
from mtpc.lab.training.state_file import StateFile
from mtpc.lab.training.state_schema import LearnerState, TrainingState

MAX_GRADIENT_NORM = 1.0  # of the gradient of a model; a larger one is scaled down to it
PRINTED_LINES = 50  # that a whole training prints
FINAL_LOSS_UPDATES = 20  # updates whose mean loss provenance.json states

# The number of updates that are done, and each model's loss in the last, with what was measured after it.
Progress = Callable[[int, dict[str, float]], None]


@dataclass
class Learner(Generic[Model]):
    """A model in training.

    weights: [n], of the losses.  losses: by update, the mean over its examples of each loss.  history: what was
    measured, and after how many updates and seconds.
    """

    name: str
    model: Model
    weights: Tensor
    optimizers: list[torch.optim.Optimizer]
    losses: list[list[float]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)

    def loss(self, losses: list[float]) -> float:
        """The loss that is made smaller: the losses by their weights."""
        return math.fsum(weight * loss for weight, loss in zip(self.weights.tolist(), losses, strict=True))

    def to_state(self) -> dict[str, Any]:
        """What a state on disk holds of it."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        weights = self.model.state_dict()
        return {"weights": weights, "optimizers": optimizers, "losses": self.losses, "history": self.history}

    def restore(self, state: LearnerState, update: int) -> None:
        """Go on from what a state on disk holds of it after so many updates.

        Errors: RuntimeError or ValueError for the state of another model.
        """
        self.model.load_state_dict(state.weights)
        restore_optimizers(self.optimizers, state.optimizers, update)
        if [len(losses) for losses in state.losses] != [len(self.weights)] * update:
            raise ValueError("it has other losses")
        self.losses, self.history = state.losses, state.history


class Trainer(Generic[Model]):
    """A training, from its start or from where it was left.

    resume: a state file, written every ``save_every`` updates (by default as often as the recipe says) and after the
    last, and taken up when it exists.  minutes: of training, earlier runs included, after which it ends; the learning
    rate has then come down as far as it would have after the last update.

    Errors: `MTPCError` for a state that is damaged or of another training.
    """

    def __init__(
        self,
        recipe: Recipe[Model],
        *,
        resume: Path | None = None,
        save_every: int | None = None,
        minutes: float | None = None,
    ) -> None:
        self.recipe, self.schedule, self.minutes = recipe, recipe.schedule, minutes
        self.save_every = save_every or recipe.save_every
        self.learners = [
            Learner(name, model.train(), recipe.weights(model), recipe.optimizers(model))
            for name, model in recipe.models().items()
        ]
        self.update, self.seconds = 0, 0.0  # updates that are done, and the time that they took
        self.state = None if resume is None else StateFile(resume, self._identity())
        saved = None if self.state is None else self.state.read()
        if saved is not None:
            self._restore(saved)

    @property
    def updates(self) -> int:
        """All updates, those that are done included."""
        return self.schedule.updates

    @property
    def position(self) -> float:
        """The update that the learning rate is at: the next one, or a later one where time is shorter than updates."""
        if self.minutes is None:
            return self.update
        return max(self.update, self.updates * self.seconds / (60 * self.minutes))

    def run(self, progress: Progress = lambda update, losses: None) -> None:
        """Train to the last update, or until the time is up.

        Errors: `MTPCError` where a loss is no longer finite.
        """
        started = time.monotonic() - self.seconds
        while self.position < self.updates:
            self._learn(self.recipe.batch(self.update))
            self.update += 1
            self.seconds = time.monotonic() - started
            figures = {learner.name: learner.loss(learner.losses[-1]) for learner in self.learners}
            is_due = self.position >= self.updates or self.update % self.save_every == 0
            progress(self.update, figures | self._measure() if is_due else figures)
            if is_due and self.state is not None:
                self.state.write(self._to_state())

    def _measure(self) -> dict[str, float]:
        """Let the recipe measure every model; by the names of both."""
        figures: dict[str, float] = {}
        for learner in self.learners:
            if measured := self.recipe.measure(learner.model):
                learner.history.append({"update": self.update, **measured, "seconds": self.seconds})
                figures |= {f"{learner.name} {name}": value for name, value in measured.items()}
        return figures

    def _learn(self, batch: TrainingBatch) -> None:
        """One update of every model."""
        totals = [torch.zeros(len(learner.weights)) for learner in self.learners]
        for micro_batch in batch.micro_batches:
            for learner, total in zip(self.learners, totals, strict=True):
                device = learner.weights.device
                with torch.autocast(device.type, torch.bfloat16, training_dtype(device) == torch.bfloat16):
                    losses = self.recipe.losses(learner.model, micro_batch)  # [n]
                ((losses * learner.weights).sum() / batch.examples).backward()
                total += losses.detach().cpu() / batch.examples
        rate = self.schedule.rate(self.position)
        for learner, total in zip(self.learners, totals, strict=True):
            if not torch.isfinite(total).all():
                raise MTPCError(
                    f"the loss of {learner.name} became {learner.loss(total.tolist())} at update {self.update + 1}; "
                    "a smaller learning rate may keep it finite."
                )
            learner.losses.append(total.tolist())
            nn.utils.clip_grad_norm_(learner.model.parameters(), MAX_GRADIENT_NORM)
            for optimizer in learner.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    def _identity(self) -> dict[str, Any]:
        models = {learner.name: learner.model for learner in self.learners}
        return {**self.recipe.identity(models), "recipe": asdict(self.recipe.settings), "data": self.recipe.data()}

    def _to_state(self) -> dict[str, Any]:
        learners = {learner.name: learner.to_state() for learner in self.learners}
        return {"update": self.update, "seconds": self.seconds, "learners": learners}

    def _restore(self, saved: dict[str, Any]) -> None:
        assert self.state is not None
        state = declared(TrainingState, saved, str(self.state.path))
        try:
            if state.update > self.updates:
                raise ValueError("it has more updates")
            for learner in self.learners:
                learner.restore(state.learners[learner.name], state.update)
        except (KeyError, RuntimeError, ValueError):
            raise self.state.error("does not hold the weights of these models") from None
        self.update, self.seconds = state.update, state.seconds

    def facts(self, learner: Learner[Model]) -> dict[str, Any]:
        """What provenance.json says of a model's training."""
        last = learner.losses[-FINAL_LOSS_UPDATES:]
        final = [math.fsum(position) / len(last) for position in zip(*last, strict=True)]
        return {
            **asdict(self.recipe.settings),
            **self.recipe.facts(learner.model),
            **self.recipe.data(),
            "updates": self.update,
            "planned_updates": self.updates,
            "final_loss": learner.loss(final),
            "final_losses": final,
            "seconds": round(self.seconds, 1),
        }


def train_on(terminal: Console, trainer: Trainer[Any]) -> None:
    """Train with a progress bar, and a line now and then and for what is measured."""
    every = max(1, trainer.updates // PRINTED_LINES)
    with progress_on(terminal) as progress:
        bar = progress.add_task("updates", total=trainer.updates, completed=trainer.update)

        def show(update: int, figures: dict[str, float]) -> None:
            progress.update(bar, completed=update)
            if update % every == 0 or update == trainer.updates or len(figures) > len(trainer.learners):
                rounded = {name: round(figure, 4) for name, figure in figures.items()}
                terminal.print(json.dumps({"update": update, **rounded}))

        trainer.run(show)
