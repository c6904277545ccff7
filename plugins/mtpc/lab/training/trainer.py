"""Training loop for drafters of any method, several at once on the same batches, and for targets."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic

import torch
from rich.console import Console
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.lab.console import progress_on
from mtpc.lab.training.interruption import stop_on_signals
from mtpc.lab.training.optimizers import restore_optimizers
from mtpc.lab.training.precision import products_for, training_dtype
from mtpc.lab.training.processes import Processes
from mtpc.lab.training.recipe import Model, Recipe, TrainingBatch
from mtpc.lab.training.state_file import StateFile
from mtpc.lab.training.state_schema import LearnerState, TrainingState

MAX_GRADIENT_NORM = 1.0  # a larger gradient of a model is scaled down to this norm
PRINTED_LINES = 50  # lines that a whole training prints, about
FINAL_LOSS_UPDATES = 20  # updates whose mean loss is the final loss in provenance.json

# Called with the number of completed updates and the figures: each model's loss, and what was measured.
Progress = Callable[[int, dict[str, float]], None]


@dataclass
class Learner(Generic[Model]):
    """Model in training.

    Attributes:
        name: Name of the model.
        model: Model in training mode.
        weights: Weight of each loss, [n].
        optimizers: Optimizers of all its parameters.
        losses: Mean losses over the examples of each update, one list of n values per update.
        history: Measured figures, with the number of updates and seconds at which they were measured.
    """

    name: str
    model: Model
    weights: Tensor
    optimizers: list[torch.optim.Optimizer]
    losses: list[list[float]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)

    def loss(self, losses: list[float]) -> float:
        """Return the weighted sum of the losses, which the training minimizes."""
        return math.fsum(weight * loss for weight, loss in zip(self.weights.tolist(), losses, strict=True))

    def to_state(self) -> dict[str, Any]:
        """Return what a saved state holds of this model."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return {"weights": self._weights(), "optimizers": optimizers, "losses": self.losses, "history": self.history}

    def _weights(self) -> dict[str, Tensor]:
        """Return the floating-point tensors of the model by name; others, such as token ids, are not trained."""
        return {name: tensor for name, tensor in self.model.state_dict().items() if tensor.is_floating_point()}

    def restore(self, state: LearnerState, update: int) -> None:
        """Restore the model and its optimizers from a saved state.

        Args:
            state: Saved state of the model.
            update: Updates after which the state was saved.

        Raises:
            RuntimeError: The weights belong to another model.
            ValueError: The optimizers or losses belong to another model.
        """
        if state.weights.keys() != self._weights().keys():
            raise RuntimeError("the state has other weights")
        self.model.load_state_dict(self.model.state_dict() | state.weights)
        restore_optimizers(self.optimizers, state.optimizers, update)
        if [len(losses) for losses in state.losses] != [len(self.weights)] * update:
            raise ValueError("the state has another number of losses")
        self.losses, self.history = state.losses, state.history


class Trainer(Generic[Model]):
    """Training from the start, or resumed from a saved state.

    Call ``run`` once; then read ``learners`` and ``facts``. Where torchrun started several processes (see `Processes`),
    each computes the gradients of its share of every batch. Their sum is that of one process, within rounding.

    Args:
        recipe: Recipe of the training.
        resume: State file. It is resumed if it exists, and written every ``save_every`` updates and after the last.
        save_every: Updates between two saved states. None uses the recipe's value.
        minutes: Time limit in minutes, earlier runs included. The learning rate decays over this time. None: no limit.

    Raises:
        MTPCError: The state file is damaged or belongs to another training, or the processes' states differ.
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
        self.update, self.seconds = 0, 0.0  # completed updates and their time
        self.state = None if resume is None else StateFile(resume, self._identity())
        saved = None if self.state is None else self.state.read()
        if saved is not None:
            self._restore(saved)
        self.processes = Processes.started()
        if self.processes.largest(self.update) != -self.processes.largest(-self.update):
            raise MTPCError(
                f"this process has made {self.update:,} updates in {resume}, but another one more or fewer: put the "
                "same state file on every machine, or remove it from all."
            )
        for learner in self.learners:
            self.processes.broadcast(learner.model.parameters())

    @property
    def updates(self) -> int:
        """Planned updates, completed ones included."""
        return self.schedule.updates

    @property
    def position(self) -> float:
        """Position in the learning rate schedule, in updates; it runs ahead of the updates when time is short."""
        if self.minutes is None:
            return self.update
        return max(self.update, self.updates * self.seconds / (60 * self.minutes))

    def run(
        self, progress: Progress = lambda update, losses: None, is_stopped: Callable[[], bool] = lambda: False
    ) -> bool:
        """Train to the last update or to the time limit.

        Args:
            progress: Called after every update, see `Progress`.
            is_stopped: Whether to stop after the update in progress, asked after every update.

        Returns:
            Whether the training is complete. Otherwise a process was told to stop, and the state is saved.

        Raises:
            MTPCError: A loss is no longer finite.
        """
        started = time.monotonic() - self.seconds
        stopped = False
        while self.position < self.updates and not stopped:
            self._learn(self.recipe.share(self.update, self.processes))
            self.update += 1
            self.seconds = self.processes.largest(time.monotonic() - started)
            figures = {learner.name: learner.loss(learner.losses[-1]) for learner in self.learners}
            is_due = self.position >= self.updates or self.update % self.save_every == 0
            progress(self.update, figures | self._measure() if is_due else figures)
            stopped = self.processes.largest(is_stopped()) > 0
            if (is_due or stopped) and self.state is not None and self.processes.is_first:
                self.state.write(self._to_state())
        return self.position >= self.updates

    def _measure(self) -> dict[str, float]:
        """Measure every model and return the figures by model and name."""
        figures: dict[str, float] = {}
        for learner in self.learners:
            with products_for(learner.weights.device):
                measured = self.recipe.measure(learner.model)
            if measured:
                learner.history.append({"update": self.update, **measured, "seconds": self.seconds})
                figures |= {f"{learner.name} {name}": value for name, value in measured.items()}
        return figures

    def _learn(self, batch: TrainingBatch) -> None:
        """Run one update of every model on the share of this process."""
        totals = [torch.zeros(len(learner.weights)) for learner in self.learners]
        for micro_batch in batch.micro_batches:
            for learner, total in zip(self.learners, totals, strict=True):
                with products_for(learner.weights.device):
                    losses = self.recipe.losses(learner.model, micro_batch)  # [n]
                ((losses * learner.weights).sum() / batch.examples).backward()
                total += losses.detach().cpu() / batch.examples
        rate = self.schedule.rate(self.position)
        for learner, total in zip(self.learners, totals, strict=True):
            total = self.processes.sum(total)
            if not torch.isfinite(total).all():
                raise MTPCError(
                    f"the loss of {learner.name} became {learner.loss(total.tolist())} at update {self.update + 1}; "
                    "try a smaller --learning-rate."
                )
            learner.losses.append(total.tolist())
            self.processes.add_gradients(learner.model.parameters())
            norm = nn.utils.clip_grad_norm_(learner.model.parameters(), MAX_GRADIENT_NORM)
            if not torch.isfinite(norm):
                raise MTPCError(
                    f"the gradient of {learner.name} became {norm.item()} at update {self.update + 1}; "
                    "try a smaller --learning-rate."
                )
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
        state = validated(TrainingState, saved, str(self.state.path))
        try:
            if state.update > self.updates:
                raise ValueError("the state has more updates than this training")
            for learner in self.learners:
                learner.restore(state.learners[learner.name], state.update)
        except (KeyError, RuntimeError, ValueError):
            raise self.state.error("does not hold the weights of these models") from None
        self.update, self.seconds = state.update, state.seconds

    def facts(self, learner: Learner[Model]) -> dict[str, Any]:
        """Return the facts of a model's training for provenance.json."""
        last = learner.losses[-FINAL_LOSS_UPDATES:]
        final = [math.fsum(position) / len(last) for position in zip(*last, strict=True)]
        with products_for(learner.weights.device):
            found = self.recipe.facts(learner.model)
        return {
            **asdict(self.recipe.settings),
            **found,
            **self.recipe.data(),
            "updates": self.update,
            "planned_updates": self.updates,
            "processes": self.processes.count,
            "precision": str(training_dtype(learner.weights.device)).removeprefix("torch."),
            "final_loss": learner.loss(final),
            "final_losses": final,
            "seconds": round(self.seconds, 1),
        }


def train_on(terminal: Console, trainer: Trainer[Any]) -> None:
    """Train with a progress bar, and print losses and measured figures as lines of JSON.

    Where a state is saved, SIGINT and SIGTERM end the training after the update in progress.

    Args:
        terminal: Console for the progress bar and the lines.
        trainer: Training to run.

    Raises:
        MTPCError: A loss is no longer finite, or the training was stopped.
    """
    every = max(1, trainer.updates // PRINTED_LINES)
    with progress_on(terminal) as progress:
        bar = progress.add_task("updates", total=trainer.updates, completed=trainer.update)

        def show(update: int, figures: dict[str, float]) -> None:
            progress.update(bar, completed=update)
            if update % every == 0 or update == trainer.updates or len(figures) > len(trainer.learners):
                rounded = {name: round(figure, 4) for name, figure in figures.items()}
                terminal.print(json.dumps({"update": update, **rounded}))

        with nullcontext(lambda: False) if trainer.state is None else stop_on_signals() as is_stopped:
            complete = trainer.run(show, is_stopped)
    if not complete:
        assert trainer.state is not None
        raise MTPCError(
            f"stopped after {trainer.update} of {trainer.updates} updates: the same command continues from "
            f"{trainer.state.path}."
        )
