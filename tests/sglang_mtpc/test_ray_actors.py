"""Schedulers in Ray's actors load the plugins first, where a drafter or draft vocabularies are served."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.server_args import prepare_server_args

from mtpc.errors import MTPCError
from sglang_mtpc import integration_points, ray_actors
from tests.sglang_mtpc.resolving import resolved
from tests.sglang_mtpc.test_integration_points import WRONG
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_native import make_eagle

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture(autouse=True)
def kept_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions are shown as they were."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture
def asked(target: Path, drafter: Path, tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Return the arguments that serve a drafter with the target, by SGLang's name of the algorithm."""
    layer, words = make_eagle(tmp_path / "eagle", target, sglang=True), make_vocabulary(tmp_path / "words.json", 258)
    path = "--speculative-draft-model-path"
    return {"MTPC": (path, str(drafter)), "EAGLE": (path, str(layer), "--speculative-token-map", str(words))}


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in turn; the plugins are not loaded."""
    events: list[str] = []
    monkeypatch.setattr(ray_actors, "load_plugins", lambda: events.append("plugins are loaded"))
    return events


def actor(events: list[str]) -> Callable[..., Any]:
    """SGLang's function, which hands pickled arguments over to an actor, and returns what that one gets."""

    def create(*args: Any, **options: Any) -> Any:
        received = pickle.loads(pickle.dumps(options))  # noqa: S301 (our own)
        events.append("the scheduler is built")
        return received

    return create


def test_plugins_are_loaded_before_a_scheduler_is_built(
    target: Path, asked: dict[str, tuple[str, ...]], happened: list[str]
) -> None:
    for algorithm, arguments in asked.items():
        given = prepare_server_args(["--model-path", str(target), "--speculative-algorithm", algorithm, *arguments])
        received = ray_actors.create_actor(actor(happened), "group", server_args=given, tp_rank=1)
        assert happened == ["plugins are loaded", "the scheduler is built"]
        assert (received["tp_rank"], received["server_args"].model_path) == (1, str(target))
        assert type(received["server_args"]) is type(given)
        happened.clear()


def test_other_servers_are_left_alone(target: Path, happened: list[str]) -> None:
    given = prepare_server_args(["--model-path", str(target)])
    ray_actors.create_actor(actor(happened), server_args=given)
    assert happened == ["the scheduler is built"]


def test_sglang_creates_its_actors_so() -> None:
    pytest.importorskip("ray")
    from sglang.srt.ray import data_parallel_controller, engine

    assert engine._create_scheduler_actor.__wrapped__.__module__ == engine.__name__
    assert data_parallel_controller._create_scheduler_actor is engine._create_scheduler_actor


def test_another_releases_actors_refuse_drafters_in_them(
    target: Path, asked: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, integration_points.RAY_ENGINE, raising=False)
    monkeypatch.setattr(integration_points, "find_spec", lambda name: name)
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=integration_points.RAY)])
    for algorithm, arguments in asked.items():
        assert resolved(target, *arguments, algorithm=algorithm).speculative_algorithm == algorithm
        with pytest.raises(MTPCError, match="is expected; install an SGLang version"):
            resolved(target, *arguments, "--use-ray", algorithm=algorithm)
