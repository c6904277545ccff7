"""A tiny target and drafter for everything here; needs vLLM, starts no engine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_hybrid import make_hybrid
from tests.support.random_models import make_drafter, make_target

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one rank."""
    from vllm_mtpc import ranks

    monkeypatch.setattr(ranks, "tensor_model_parallel_all_gather", lambda tensor, dim: tensor)
    monkeypatch.setattr(ranks, "get_tp_group", lambda: SimpleNamespace(world_size=1))


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads metrics because one before it made vLLM's arguments, which ask for them."""
    from vllm_mtpc import metrics

    monkeypatch.setenv(metrics.VARIABLE, "")
    monkeypatch.delenv(metrics.VARIABLE)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random byte-level Llama."""
    return make_target(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="session")
def drafter(target: Path) -> Path:
    """A drafter for it, with a window of 8."""
    return make_drafter(target.parent / "drafter", target)


@pytest.fixture(scope="session")
def fastmtp(target: Path) -> Path:
    """A FastMTP drafter for it."""
    return make_fastmtp(target.parent / "fastmtp", target)


@pytest.fixture(scope="session")
def hybrid(target: Path) -> Path:
    """One of a third draft method, with both parts."""
    return make_hybrid(target.parent / "hybrid", target)
