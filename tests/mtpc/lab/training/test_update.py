"""What the trainer does with the losses of a recipe, in numbers that can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtpc.files.config_model import Strict
from mtpc.lab.training.recipe import DrafterRecipe, TrainingBatch
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.trainer import Trainer

WEIGHTS, START = torch.tensor([0.75, 0.25]), torch.tensor([3.0, -1.0])
# Of each update: parts, whose rows are examples of two positions each.  The gradients of the first are clipped.
UPDATES = [
    [[[30.0, 5.0], [10.0, -4.0]], [[2.0, 2.0]]],
    [[[3.0, -1.5]]],
    [[[2.5, 0.0], [3.5, 0.5]], [[3.0, 0.0], [3.5, -0.5]]],
]


class NoMethod:
    """What a state on disk tells of a draft method."""

    name = "none"


class NoConfig(Strict):
    """None."""


@dataclass(frozen=True)
class NoSettings:
    """None."""


class Point(nn.Module):
    """Two numbers that are drawn towards the examples."""

    method, config = NoMethod(), NoConfig()

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(START.clone())


class Pull(DrafterRecipe):
    """The loss of a position is half its squared distance, so that the gradient is the distance; plain descent."""

    target: Any = type("Target", (), {"digest": lambda self: ""})()
    settings = NoSettings()
    schedule = Schedule(0.5, len(UPDATES), 2, 2, "linear")
    momentum = 0.0

    def models(self) -> dict[str, Any]:
        return {"point": Point(), "another": Point()}

    def optimizers(self, drafter: Any) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(drafter.parameters(), lr=123.0, momentum=self.momentum)]

    def weights(self, drafter: Any) -> Tensor:
        return WEIGHTS

    def batch(self, update: int) -> TrainingBatch:
        parts = [torch.tensor(part) for part in UPDATES[update]]
        return TrainingBatch(sum(map(len, parts)), parts)

    def losses(self, drafter: Any, part: Tensor) -> Tensor:
        return ((drafter.place - part) ** 2 / 2).sum(0)

    def data(self) -> dict[str, Any]:
        return {}


def by_hand(momentum: float = 0.0) -> tuple[list[list[float]], list[float]]:
    """The mean loss of each position in each update, and the place in the end."""
    place, moved, losses = START.tolist(), [0.0, 0.0], []
    for parts, rate in zip(UPDATES, (0.25, 0.5, 0.5), strict=True):  # half of the peak, then the peak
        rows = [row for part in parts for row in part]
        losses.append([sum((place[j] - row[j]) ** 2 / 2 for row in rows) / len(rows) for j in (0, 1)])
        slope = [WEIGHTS[j].item() * sum(place[j] - row[j] for row in rows) / len(rows) for j in (0, 1)]
        norm = (slope[0] ** 2 + slope[1] ** 2) ** 0.5
        for j in (0, 1):
            moved[j] = momentum * moved[j] + slope[j] / max(1.0, norm)
            place[j] -= rate * moved[j]
    return losses, place


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_updates_are_those_worked_out_by_hand(momentum: float) -> None:
    """Of all parts' examples alike, by the positions' weights, at the schedule's rate, with a norm of 1 at most."""
    recipe = Pull()
    recipe.momentum = momentum
    trainer, reported = Trainer(recipe), []
    trainer.run(lambda update, losses: reported.append((update, losses)))
    losses, place = by_hand(momentum)
    for learner in trainer.learners:
        torch.testing.assert_close(torch.tensor(learner.losses), torch.tensor(losses), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(learner.model.state_dict()["place"], torch.tensor(place), rtol=1e-5, atol=1e-5)
    weighted = [0.75 * first + 0.25 * second for first, second in losses]
    assert [update for update, _ in reported] == [1, 2, 3]
    assert [losses["point"] for _, losses in reported] == pytest.approx(weighted, rel=1e-5)
    facts = trainer.facts(trainer.learners[1])
    assert facts["final_loss"] == pytest.approx(sum(weighted) / 3, rel=1e-5)
    assert facts["updates"] == 3


def test_a_state_is_written_now_and_then_and_holds_the_optimizers(tmp_path: Path) -> None:
    recipe = Pull()
    recipe.momentum = 0.9
    for save_every, left_at in ((2, 2), (1, 2), (5, 0)):
        state, written = tmp_path / f"every {save_every}", []
        trainer = Trainer(recipe, resume=state, save_every=save_every)

        def stop(update: int, losses: dict[str, float], state: Path = state, written: list[bool] = written) -> None:
            written.append(state.exists())
            if update == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trainer.run(stop)
        assert written == [False, save_every == 1, save_every < 3]
        resumed = Trainer(recipe, resume=state)
        assert resumed.update == left_at
        resumed.run()
        _, place = by_hand(0.9)
        for learner in resumed.learners:
            assert len(learner.losses) == 3
            torch.testing.assert_close(learner.model.state_dict()["place"], torch.tensor(place), rtol=1e-5, atol=1e-5)


def test_provenance_tells_the_mean_of_the_last_20_updates() -> None:
    """With a rate of next to nothing the place stays, and what each update reads tells them apart."""
    recipe = Pull()
    recipe.schedule = Schedule(1e-12, 30, 0, 30, "linear")
    recipe.batch = lambda update: TrainingBatch(1, [torch.tensor([[3.0 + update, -1.0]])])  # type: ignore[method-assign]
    trainer = Trainer(recipe)
    trainer.run()
    expected = sum(update**2 / 2 for update in range(10, 30)) / 20
    facts = trainer.facts(trainer.learners[0])
    assert facts["final_losses"] == [pytest.approx(expected), pytest.approx(0.0, abs=1e-6)]
    assert facts["final_loss"] == pytest.approx(0.75 * expected)


def test_losses_are_computed_in_bfloat16_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, gradients and optimizers stay in float32."""
    for dtype in (torch.bfloat16, torch.float32):
        monkeypatch.setattr("mtpc.lab.training.precision.training_dtype", lambda device, dtype=dtype: dtype)
        recipe, computed = Pull(), set()

        def losses(model: Any, part: Tensor, recipe: Pull = recipe, computed: set[torch.dtype] = computed) -> Tensor:
            computed.add((model.place[None] @ part[:1].T).dtype)
            return Pull.losses(recipe, model, part)

        recipe.losses = losses  # type: ignore[method-assign]
        trainer = Trainer(recipe)
        trainer.run()
        assert computed == {dtype}
        assert {learner.model.place.dtype for learner in trainer.learners} == {torch.float32}
