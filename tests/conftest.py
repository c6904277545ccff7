"""Tests that need an engine are left out where none is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

torch.set_num_threads(1)  # small tensors: a second thread only waits, and much longer where the machine is busy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``engine`` where vLLM is not installed."""
    if find_spec("vllm") is not None:
        return
    skip = pytest.mark.skip(reason="vLLM is not installed; scripts/make_env.sh --test installs it")
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(skip)
