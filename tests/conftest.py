"""What all tests share.  Tests that need an engine are collected only where it is installed, see the folders' own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

from mtpc import errors

torch.set_num_threads(1)  # small tensors: a second thread only waits, and much longer where the machine is busy
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # tests run side by side
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _own_random_numbers() -> None:
    """A test draws the same numbers alone, in its file and in any order of the whole."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _unrefused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test ends like an engine's process because one before it started an engine in this one."""
    monkeypatch.setenv(errors.VARIABLE, "")
    monkeypatch.delenv(errors.VARIABLE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-all` passes it."""
    parser.addoption("--thorough", action="store_true", help="run the tests marked thorough as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes longest."""
    if config.getoption("--thorough"):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
