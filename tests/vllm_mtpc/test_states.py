"""A drafter that reads a state between the target's layers, and its configuration in vLLM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtpc.errors import MTPCError
from tests.support.random_hybrid import make_between, register_method
from vllm_mtpc import dispatch, integration_points


@pytest.fixture
def between(target: Path, tmp_path: Path) -> Path:
    """The directory of such a drafter."""
    register_method()
    return make_between(tmp_path / "between", target)


def config_of(folder: Path, architecture: str) -> Any:
    """VLLM's configuration, as far as it is read here."""
    draft = SimpleNamespace(model=str(folder), revision=None, architectures=[architecture])
    return SimpleNamespace(speculative_config=SimpleNamespace(draft_model_config=draft))


def test_which_state_is_read(between: Path, drafter: Path, fastmtp: Path) -> None:
    assert dispatch.state_below(config_of(between, "EagleBetweenForCausalLM")) == 1
    for folder in (drafter, fastmtp):
        assert dispatch.state_below(config_of(folder, "")) is None


def test_a_target_that_does_not_hand_it_over_is_refused(between: Path) -> None:
    with pytest.raises(MTPCError, match="between the target's layers, which vLLM's object does not return"):
        dispatch.check_aux_hidden_states(object(), config_of(between, ""))


@pytest.mark.parametrize("architecture", ["EagleBetweenForCausalLM", "EagleLlamaForCausalLM", None])
def test_the_second_runner_knows_before_it_loads(between: Path, architecture: str | None) -> None:
    """Its target hands over the state; for other drafters nothing changes."""

    class GPUModelRunner:
        use_aux_hidden_state_outputs = False

        def load_model(self, *others: Any) -> tuple[bool, tuple[Any, ...]]:
            return self.use_aux_hidden_state_outputs, others

    dispatch.install_runner_v2(SimpleNamespace(GPUModelRunner=GPUModelRunner))
    runner: Any = GPUModelRunner()
    runner.vllm_config = SimpleNamespace() if architecture is None else config_of(between, architecture)
    runner.speculative_config = None if architecture is None else runner.vllm_config.speculative_config
    assert runner.load_model(1, 2) == (architecture == "EagleBetweenForCausalLM", (1, 2))


def test_its_integration_points_hold() -> None:
    assert not list(integration_points.problems(autoregressive=True, parallel=True, state=True))
