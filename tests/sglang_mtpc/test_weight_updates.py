"""Updates of weights while serving: SGLang's selection of what is updated, without an engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager

from sglang_mtpc import weight_updates
from sglang_mtpc.autoregressive_worker import AutoregressiveWorker
from sglang_mtpc.native import NativeWorker
from sglang_mtpc.parallel_worker import ParallelWorker
from sglang_mtpc.text_drafts import TextWorker

TARGET, DRAFT = ("target", "runner of the target"), ("draft", "runner of the drafter")


@pytest.fixture(autouse=True)
def first_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the first rank, before any update."""
    monkeypatch.setattr(weight_updates, "get_parallel", lambda: SimpleNamespace(tp_rank=0))
    yield
    weight_updates.warn_of_update.cache_clear()


def selected(worker: type, **draft_worker: Any) -> list[tuple[str, Any]]:
    """What SGLang updates, by default."""
    made: Any = worker.__new__(worker)
    made._draft_worker = SimpleNamespace(draft_runners=[DRAFT[1]], **draft_worker)
    updater: Any = SchedulerWeightUpdaterManager.__new__(SchedulerWeightUpdaterManager)
    updater.tp_worker, updater.draft_worker = SimpleNamespace(weight_update_runners=lambda: [TARGET]), made
    found: list[tuple[str, Any]] = updater._select_runners()
    return found


@pytest.mark.parametrize("worker", [AutoregressiveWorker, ParallelWorker, TextWorker])
def test_a_drafter_stays_as_it_is(worker: type, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert [selected(worker) for _ in range(3)] == [[TARGET]] * 3
    (line,) = caplog.messages
    assert "leave out the drafter" in line and "acceptance may drop" in line


@pytest.mark.parametrize("head", [None, "rows"])
def test_sglangs_own_drafters_are_updated(head: str | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert selected(NativeWorker, head=head) == [TARGET, DRAFT]
    assert ["draft vocabularies" in line for line in caplog.messages] == [True] * (head is not None)


def test_other_ranks_are_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(weight_updates, "get_parallel", lambda: SimpleNamespace(tp_rank=1))
    assert selected(ParallelWorker) == [TARGET]
    assert not caplog.messages
