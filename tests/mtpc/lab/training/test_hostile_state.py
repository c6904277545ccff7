"""State files that are well-formed but hold what no training wrote: one sentence before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.training.trainer import Trainer
from tests.mtpc.lab.training.tiny_recipes import RECIPES, tiny_target

Change = Callable[[dict[str, Any], dict[str, Any]], object]  # of the state, and of its first drafter


def first_moment(learner: dict[str, Any]) -> dict[str, Any]:
    """What an optimizer remembers of its first parameter."""
    found: dict[str, Any] = learner["optimizers"][0]["state"][0]
    return found


CHANGES: dict[str, Change] = {
    "no update": lambda state, learner: state.update(update=0),
    "a negative update": lambda state, learner: state.update(update=-5),
    "an update that is text": lambda state, learner: state.update(update="2"),
    "an update beyond the last": lambda state, learner: state.update(update=10**30),
    "seconds that are no number": lambda state, learner: state.update(seconds=float("nan")),
    "no seconds": lambda state, learner: state.pop("seconds"),
    "an unknown key": lambda state, learner: state.update(more=1),
    "no learners": lambda state, learner: state.update(learners={}),
    "learners that are a list": lambda state, learner: state.update(learners=[learner]),
    "no weights": lambda state, learner: learner.update(weights={}),
    "weights of another shape": lambda state, learner: learner["weights"].update(
        {name: torch.zeros(1, 2, 3) for name in learner["weights"]}
    ),
    "weights of whole numbers": lambda state, learner: learner["weights"].update(
        {name: weight.long() for name, weight in learner["weights"].items()}
    ),
    "sparse weights": lambda state, learner: learner["weights"].update(
        {name: weight.to_sparse() for name, weight in learner["weights"].items()}
    ),
    "weights that are lists": lambda state, learner: learner["weights"].update(
        {name: weight.tolist() for name, weight in learner["weights"].items()}
    ),
    "no optimizers": lambda state, learner: learner.update(optimizers=[]),
    "an optimizer that is text": lambda state, learner: learner.update(optimizers=["adamw"]),
    "a moment of another shape": lambda state, learner: first_moment(learner).update(exp_avg=torch.zeros(7)),
    "a missing moment": lambda state, learner: first_moment(learner).pop("exp_avg_sq"),
    "an unknown moment": lambda state, learner: first_moment(learner).update(more=torch.zeros(1)),
    "a step before the first": lambda state, learner: first_moment(learner).update(step=torch.tensor(-1.0)),
    "a step beyond the update": lambda state, learner: first_moment(learner).update(step=torch.tensor(99.0)),
    "no losses": lambda state, learner: learner.update(losses=[]),
    "losses of another window": lambda state, learner: learner.update(losses=[[1.0]] * state["update"]),
    "losses that are no numbers": lambda state, learner: learner["losses"].__setitem__(0, [float("nan")] * 9),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    return tiny_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module", params=sorted(RECIPES))
def trained(request: pytest.FixtureRequest, target: FrozenTarget, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A draft method, a folder with its data, and the state of its whole training."""
    folder = tmp_path_factory.mktemp(request.param)
    Trainer(RECIPES[request.param](target, folder), resume=folder / "state").run()
    return request.param, folder


@pytest.mark.parametrize("change", CHANGES)
def test_what_no_training_wrote(change: str, trained: Any, target: FrozenTarget, tmp_path: Path) -> None:
    method, folder = trained
    saved = torch.load(folder / "state", weights_only=True)
    CHANGES[change](saved["state"], next(iter(saved["state"]["learners"].values())))
    torch.save(saved, tmp_path / "state")
    with pytest.raises(MTPCError) as caught:
        Trainer(RECIPES[method](target, folder), resume=tmp_path / "state")
    assert str(caught.value).startswith(f"{tmp_path / 'state'} ")
    assert "\n" not in str(caught.value)


def test_settings_of_an_optimizer_are_never_taken_from_a_file(
    trained: Any, target: FrozenTarget, tmp_path: Path
) -> None:
    method, folder = trained
    saved = torch.load(folder / "state", weights_only=True)
    for learner in saved["state"]["learners"].values():
        for optimizer in learner["optimizers"]:
            optimizer["param_groups"] = [{"lr": "fast", "betas": 5, "params": []}]
    torch.save(saved, tmp_path / "state")
    trainer = Trainer(RECIPES[method](target, folder), resume=tmp_path / "state")
    assert trainer.update == trainer.updates
    for learner in trainer.learners:
        assert all(group["betas"] != 5 for each in learner.optimizers for group in each.param_groups)
