"""A tiny target and drafter for everything here; needs SGLang, starts no engine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtpc.draft import Draft
from tests.support import random_echo
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_hybrid import make_hybrid, register_method
from tests.support.random_models import make_drafter, make_target

collect_ignore_glob = [] if find_spec("sglang") else ["test_*.py"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one rank, and nobody watches metrics."""
    from sglang_mtpc import metrics, ranks

    group = SimpleNamespace(all_gather=lambda tensor, dim: tensor, world_size=1)
    monkeypatch.setattr(ranks, "get_parallel", lambda: SimpleNamespace(tp_group=group))
    monkeypatch.setattr(metrics, "get_observability", lambda: SimpleNamespace(enable_metrics=False))


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
    """A FastMTP drafter for it, of three steps."""
    return make_fastmtp(target.parent / "fastmtp", target)


@pytest.fixture(scope="session")
def hybrid(target: Path) -> Path:
    """A drafter of a third draft method for it: one draft step, then a window."""
    return make_hybrid(target.parent / "hybrid", target)


@pytest.fixture(scope="session")
def echo(target: Path) -> Path:
    """A drafter with a text part for it, of four drafts."""
    return random_echo.make_echo(target.parent / "echo", target)


@pytest.fixture(scope="module", autouse=True)
def _echo_is_known() -> Iterator[None]:
    """The example with a text part, in these tests alone: others have a table with an example of every draft method."""
    random_echo.register_method()
    yield
    random_echo.forget_method()


@pytest.fixture(scope="session")
def loaded() -> None:
    """SGLang with its plugins, as every process of it starts where further draft methods are installed."""
    register_method()
    random_echo.register_method()
    from sglang.srt.plugins import load_plugins

    load_plugins()


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Draft]:
    """The drafts that are to be verified."""
    from sglang_mtpc import verify
    from tests.sglang_mtpc.stand_ins import built_of

    drafts: list[Draft] = []

    def verify_input(batch: Any, given: Any, draft: Draft, *rest: Any) -> Any:
        drafts.append(draft)
        return built_of(draft)

    monkeypatch.setattr(verify, "verify_input", verify_input)
    return drafts
