"""Updates of weights in a running server: none of a drafter's, all others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn
from vllm.distributed.weight_transfer import base
from vllm.distributed.weight_transfer.base import WeightTransferEngine

from mtpc.errors import MTPCError
from vllm_mtpc import weight_updates
from vllm_mtpc.model import DrafterForCausalLM


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrap vLLM's method for a test."""
    name = "set_weight_update_target"
    monkeypatch.setattr(WeightTransferEngine, name, getattr(WeightTransferEngine, name))
    weight_updates.install(base)


def bare() -> Any:
    """A drafter's model that has been loaded."""
    made: Any = DrafterForCausalLM.__new__(DrafterForCausalLM)
    nn.Module.__init__(made)
    made.folder, made.is_loaded = Path("folder"), True
    return made


def test_an_update_of_a_drafter_does_not_begin() -> None:
    engine: Any = SimpleNamespace(model=None)
    with pytest.raises(MTPCError, match=r"folder cannot be updated in a running server: restart the server with the"):
        WeightTransferEngine.set_weight_update_target(engine, bare(), "config")
    assert engine.model is None


def test_other_models_are_updated() -> None:
    engine, model = SimpleNamespace(), nn.Linear(1, 1)
    WeightTransferEngine.set_weight_update_target(engine, model, "config")  # type: ignore[arg-type]
    assert engine.model is model
    assert engine.model_config == "config"


def test_weights_are_loaded_once() -> None:
    with pytest.raises(MTPCError, match=r"folder have been loaded already: restart the server with the new drafter\.$"):
        bare().load_weights([])
