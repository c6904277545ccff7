"""What holds of every draft method's recipe in the one trainer: it learns, it resumes, it stops where it must."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import signal
from collections.abc import Callable
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.console import console
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training import precision
from mtpc.lab.training.precision import training_dtype
from mtpc.lab.training.processes import Processes
from mtpc.lab.training.recipe import TrainingBatch
from mtpc.lab.training.recipes.mtpc_recipe import CircuitRecipe
from mtpc.lab.training.trainer import Trainer, train_on
from tests.mtpc.lab.training.tiny_recipes import CIRCUITS, RECIPES, tiny_target
from tests.support.tiny_models import make_target

METHODS = sorted(RECIPES)


def test_every_family_that_is_trained_has_a_recipe_here() -> None:
    """Of a draft method that only copies nothing is learned, it is counted."""
    trained = {entry.name for entry in entry_points(group="mtpc.train")} - {"copying"}
    assert trained == {name.split()[0] for name in RECIPES}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    return tiny_target(tmp_path_factory.mktemp("target"))


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {
        f"{learner.name}.{name}": weight
        for learner in trainer.learners
        for name, weight in learner.model.state_dict().items()
    }


class StoppedError(Exception):
    """The training is ended from outside."""


def stop_after(last: int) -> Callable[[int, dict[str, float]], None]:
    def stop(update: int, losses: dict[str, float]) -> None:
        if update == last:
            raise StoppedError

    return stop


@pytest.mark.parametrize("method", METHODS)
def test_a_training_in_bfloat16_is_measured_as_well(
    target: FrozenTarget, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: losses, what is measured of a model while it is trained, and the facts of its provenance."""
    monkeypatch.setattr(precision, "training_dtype", lambda device: torch.bfloat16)
    recipe = RECIPES[method](FrozenTarget(target.folder, dtype=torch.bfloat16), tmp_path)
    trainer = Trainer(recipe)
    with pytest.raises(StoppedError):
        trainer.run(stop_after(2))
    trainer._measure()
    for learner in trainer.learners:
        assert math.isfinite(trainer.facts(learner)["final_loss"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_training_after_the_update_in_progress(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Its state is saved, and the training continues from it as if it had not been stopped."""
    make, state = RECIPES["fastmtp"], tmp_path / "state"
    whole, stopped = Trainer(make(target, tmp_path)), Trainer(make(target, tmp_path), resume=state)
    whole.run()
    learn = stopped._learn

    def interrupted(batch: TrainingBatch) -> None:
        if stopped.update == 2:
            os.kill(os.getpid(), number)
        learn(batch)

    monkeypatch.setattr(stopped, "_learn", interrupted)
    before = signal.signal(number, signal.SIG_DFL)  # the tests themselves may run with it ignored
    try:
        with pytest.raises(MTPCError, match=rf"^stopped after 3 of {whole.updates} updates: the same command"):
            train_on(console(quiet=True), stopped)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    resumed = Trainer(make(target, tmp_path), resume=state)
    assert resumed.update == 3
    resumed.run()
    expected = weights_of(whole)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(resumed).items())


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_training_ends_as_one_that_was_not_stopped(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    make = RECIPES[method]
    whole = Trainer(make(target, tmp_path))
    reported: list[int] = []
    whole.run(lambda update, losses: reported.append(update))
    assert reported == list(range(1, whole.updates + 1))
    state = tmp_path / "state"
    with pytest.raises(StoppedError):
        Trainer(make(target, tmp_path), resume=state, save_every=3).run(stop_after(8))
    resumed = Trainer(make(target, tmp_path), resume=state, save_every=3)
    assert resumed.update == 6
    resumed.run()
    for one, other in zip(resumed.learners, whole.learners, strict=True):
        assert one.losses == other.losses
    expected = weights_of(whole)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(resumed).items())
    finished = Trainer(make(target, tmp_path), resume=state)
    assert finished.update == finished.updates
    finished.run(lambda update, losses: pytest.fail("it is at its end"))


def test_a_training_ends_when_its_time_is_up(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule of the learning rate is fitted to the time; without a limit, training continues from there."""
    clock = count(0.0, 6.0)  # an update takes six seconds
    monkeypatch.setattr("mtpc.lab.training.trainer.time.monotonic", lambda: next(clock))
    state, rates = tmp_path / "state", list[float]()
    trainer = Trainer(RECIPES["fastmtp"](target, tmp_path), resume=state, minutes=0.5)
    (learner,) = trainer.learners
    trainer.run(lambda update, losses: rates.append(learner.optimizers[0].param_groups[0]["lr"]))
    assert trainer.update == len(rates) == 5 < trainer.updates
    assert rates == [trainer.schedule.rate(trainer.updates * done / 5) for done in range(5)]
    facts = trainer.facts(learner)
    assert (facts["updates"], facts["planned_updates"], facts["seconds"]) == (5, trainer.updates, 30.0)
    over = Trainer(RECIPES["fastmtp"](target, tmp_path), resume=state, minutes=0.5)
    over.run(lambda update, losses: pytest.fail("its time is up"))
    longer = Trainer(RECIPES["fastmtp"](target, tmp_path), resume=state)
    longer.run()
    assert longer.update == longer.updates


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "a setting": ({"seed": 5}, "its recipe.seed is 0, but this training has 5"),
    "the rate": ({"learning_rate": 1.0}, "its recipe.learning_rate is"),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("method", METHODS)
def test_a_state_of_another_recipe_is_refused(target: FrozenTarget, tmp_path: Path, method: str, case: str) -> None:
    make, (change, message) = RECIPES[method], CHANGES[case]
    state = tmp_path / "state"
    with pytest.raises(StoppedError):
        Trainer(make(target, tmp_path), resume=state, save_every=1).run(stop_after(2))
    with pytest.raises(MTPCError, match=message):
        Trainer(make(target, tmp_path, **change), resume=state)


@pytest.mark.parametrize("method", METHODS)
def test_a_state_of_another_target_is_refused(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    make, state = RECIPES[method], tmp_path / "state"
    with pytest.raises(StoppedError):
        Trainer(make(target, tmp_path), resume=state, save_every=1).run(stop_after(2))
    other = make_target("llama", seed=1)
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(MTPCError, match=r"belongs to another training: its target_sha256 is"):
        Trainer(make(FrozenTarget(tmp_path / "other"), tmp_path), resume=state)


@pytest.mark.parametrize("others", [0, 5])
def test_processes_that_would_resume_from_different_states_are_refused(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """They would otherwise wait for each other without end."""
    with pytest.raises(StoppedError):
        Trainer(RECIPES["fastmtp"](target, tmp_path), resume=tmp_path / "state", save_every=1).run(stop_after(2))
    monkeypatch.setattr(Processes, "largest", lambda self, value: max(value, others if value >= 0 else -others))
    with pytest.raises(MTPCError, match=r"has made 1 updates in .*, but another one more or fewer"):
        Trainer(RECIPES["fastmtp"](target, tmp_path), resume=tmp_path / "state")


@pytest.mark.parametrize("method", METHODS)
def test_a_state_of_other_data_or_other_drafters_is_refused(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    make, state = RECIPES[method], tmp_path / "state"
    with pytest.raises(StoppedError):
        Trainer(make(target, tmp_path), resume=state, save_every=1).run(stop_after(2))
    with pytest.raises(MTPCError, match=r"its data\.\w+ is"):
        Trainer(make(target, tmp_path, seed_of_data=1), resume=state)
    recipe = make(target, tmp_path)
    config = next(iter(recipe.models().values())).config
    saved = torch.load(state, weights_only=True)
    (name, *_) = saved["identity"]["drafters"]
    saved["identity"]["drafters"][name]["vocab_size"] = 99
    torch.save(saved, state)
    with pytest.raises(MTPCError, match=rf"{name}\.vocab_size is 99, but this training has {config.vocab_size}"):
        Trainer(recipe, resume=state)


@pytest.mark.parametrize("method", METHODS)
def test_a_state_without_the_weights_gets_a_sentence(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    make, state = RECIPES[method], tmp_path / "state"
    with pytest.raises(StoppedError):
        Trainer(make(target, tmp_path), resume=state, save_every=1).run(stop_after(2))
    saved = torch.load(state, weights_only=True)
    next(iter(saved["state"]["learners"].values()))["weights"].popitem()
    torch.save(saved, state)
    with pytest.raises(MTPCError, match="does not hold the weights of these models"):
        Trainer(make(target, tmp_path), resume=state)


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_not_finite_ends_the_training(
    target: FrozenTarget, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES[method](target, tmp_path)
    losses = recipe.losses
    monkeypatch.setattr(recipe, "losses", lambda drafter, part: losses(drafter, part) * math.nan)
    trainer = Trainer(recipe, resume=tmp_path / "state", save_every=1)
    before = copy.deepcopy(weights_of(trainer))
    with pytest.raises(MTPCError, match=r"became nan at update 1; try a smaller --learning-rate\.$"):
        trainer.run()
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(trainer).items())
    assert not (tmp_path / "state").exists()


def test_a_gradient_that_is_not_finite_ends_the_training(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loss is finite: the derivative of a root at 0 is not."""
    recipe = RECIPES["fastmtp"](target, tmp_path)
    losses = recipe.losses
    monkeypatch.setattr(recipe, "losses", lambda drafter, part: (losses(drafter, part) * 0.0).sqrt())
    trainer = Trainer(recipe)
    before = copy.deepcopy(weights_of(trainer))
    with pytest.raises(MTPCError, match=r"^the gradient of .* at update 1; try a smaller --learning-rate\.$"):
        trainer.run()
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(trainer).items())


@pytest.mark.parametrize("method", METHODS)
def test_the_target_is_left_alone(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    before = [weight.clone() for weight in target.model.parameters()]
    Trainer(RECIPES[method](target, tmp_path)).run()
    assert all(torch.equal(a, b) for a, b in zip(before, target.model.parameters(), strict=True))
    assert all(weight.grad is None for weight in target.model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_provenance_tells_the_recipe_the_data_and_the_loss(target: FrozenTarget, tmp_path: Path, method: str) -> None:
    recipe = RECIPES[method](target, tmp_path)
    trainer = Trainer(recipe)
    trainer.run()
    for learner in trainer.learners:
        facts = trainer.facts(learner)
        assert (
            facts.items()
            >= {**dataclasses.asdict(recipe.settings), **recipe.data(), **recipe.facts(learner.model)}.items()
        )
        assert facts["updates"] == trainer.updates
        assert facts["precision"] == ("bfloat16" if training_dtype("cpu") == torch.bfloat16 else "float32")
        assert len(facts["final_losses"]) == len(learner.weights)
        assert facts["final_loss"] == pytest.approx(
            sum(learner.loss(losses) for losses in learner.losses[-20:]) / len(learner.losses[-20:])
        )


def test_drafters_side_by_side_learn_as_they_do_alone(target: FrozenTarget, tmp_path: Path) -> None:
    """As long as the longest window is theirs, which the texts' positions hang on."""
    recipe = RECIPES["mtpc"](target, tmp_path)
    assert isinstance(recipe, CircuitRecipe)
    both = Trainer(recipe)
    both.run()
    alone = Trainer(CircuitRecipe(target, recipe.corpus, {"hmm": CIRCUITS["hmm"]}, recipe.settings))
    alone.run()
    assert alone.learners[0].losses == both.learners[0].losses
    expected = weights_of(both)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(alone).items())


def test_all_drafters_read_the_target_once(
    target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(RECIPES["mtpc"](target, tmp_path))
    reads, features = [], target.features
    monkeypatch.setattr(target, "features", lambda *given: reads.append(1) or features(*given))
    trainer.run()
    assert len(reads) == trainer.updates
