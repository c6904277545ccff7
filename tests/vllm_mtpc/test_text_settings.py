"""Settings of a drafter that reads the request's text: what would do nothing, or cannot work, is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs

import vllm_mtpc
from mtpc.errors import MTPCError
from tests.support.random_echo import forget_method, make_echo
from tests.vllm_mtpc.platforms import on_a_gpu
from vllm_mtpc import dispatch, integration_points
from vllm_mtpc.v1.proposer import Proposer
from vllm_mtpc.v1.text_proposer import TextProposer

COST = {"plain": [[1, 1.0]], "verifying": [[1, 1.0]], "drafting": [[1, 0.1]]}


@pytest.fixture
def echo(target: Path, tmp_path: Path) -> Iterator[Path]:
    """The directory of such a drafter."""
    folder = make_echo(tmp_path / "echo", target)
    vllm_mtpc.register()
    yield folder
    forget_method()


def engine_config(target: Path, drafter: Path, section: dict[str, Any] | None = None, **more: Any) -> Any:
    """What every way of starting vLLM builds first."""
    speculative = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 4}
    additional = {} if section is None else {"mtpc": section}
    arguments = EngineArgs(
        model=str(target), max_model_len=256, speculative_config=speculative, additional_config=additional, **more
    )
    return arguments.create_engine_config()


def test_settings_that_do_nothing_are_refused(target: Path, echo: Path) -> None:
    sentences = {
        "store": f"additional-config mtpc.store does nothing for {echo}, which drafts from the request's text: "
        "remove it.",
        "language": "additional-config mtpc sets a draft vocabulary, which requires a drafter that drafts through "
        f"the target's output head, but {echo} does not: remove it.",
    }
    for key, value in {"store": 5, "language": "none"}.items():
        with pytest.raises(MTPCError) as caught:
            engine_config(target, echo, {key: value, "copy": True})
        assert str(caught.value) == sentences[key]
    for used in (None, {}, {"copy": True}, {"adaptive": False}, {"step_cost": COST}):
        engine_config(target, echo, used)


def test_which_runner_and_scheduling(target: Path, echo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch)  # vLLM lets no steps overlap on a CPU
    sentences = {
        None: "which requires the V1 model runner: set VLLM_USE_V2_MODEL_RUNNER=0.",
        "0": "which requires synchronous scheduling: add --no-async-scheduling.",
    }
    for runner, sentence in sentences.items():
        if runner is not None:
            monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
        with pytest.raises(MTPCError) as caught:
            engine_config(target, echo)
        assert str(caught.value) == f"{echo} drafts from the request's text, {sentence}"
    assert not engine_config(target, echo, async_scheduling=False).scheduler_config.async_scheduling


def test_its_proposer(target: Path, echo: Path, drafter: Path) -> None:
    class Eagle:
        """VLLM's proposer."""

    dispatch.install_v1(SimpleNamespace(EagleProposer=Eagle))
    for folder, kind in ((echo, TextProposer), (drafter, Proposer)):
        assert type(Eagle.__new__(Eagle, engine_config(target, folder))) is kind


def test_its_integration_points_hold(target: Path, echo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(integration_points.problems(text=True))
    (wrong,) = (line for line in integration_points.TABLE if line.function == "broadcast_tensor_dict")
    monkeypatch.setattr(integration_points, "TABLE", [wrong._replace(parameters="other")])
    assert not list(integration_points.problems(parallel=True))
    with pytest.raises(MTPCError, match="broadcast_tensor_dict"):
        engine_config(target, echo)
