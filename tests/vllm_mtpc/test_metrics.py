"""Whether metrics are shown follows from vLLM's settings; where, from who serves the page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, generate_latest

from mtpc.lab.servers.prometheus import parse
from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.exporter import INFO, NO_INFO
from mtpc.metrics.tally import Tally
from vllm_mtpc import metrics

DRAFTER = Path(__file__).parents[2] / "weights" / "byte-mtpc-hmm-n8"
CONFIG: Any = SimpleNamespace(
    speculative_config=SimpleNamespace(
        model=DRAFTER,
        num_speculative_tokens=5,
        draft_sample_method="greedy",
        draft_model_config=SimpleNamespace(model=str(DRAFTER), revision=None),
    ),
    additional_config={"mtpc": {"copy": True}},
    parallel_config=SimpleNamespace(data_parallel_index=3),
    model_config=SimpleNamespace(served_model_name="chat"),
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a process begins and ends."""
    monkeypatch.setenv(metrics.RAY_VARIABLES, "OTHER")
    before = set(REGISTRY._collector_to_names)
    yield
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)
    metrics._folder.cache_clear()


def test_off_where_vllm_counts_nothing() -> None:
    metrics.enable(SimpleNamespace(disable_log_stats=False))
    metrics.enable(SimpleNamespace(disable_log_stats=True))
    assert not metrics.enabled(0)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_counts(rank: int) -> None:
    metrics.enable(SimpleNamespace(disable_log_stats=False))
    assert metrics.enabled(rank) == (rank == 0)


def test_what_is_counted_stands_on_the_page() -> None:
    metrics.enable(SimpleNamespace(disable_log_stats=False))
    folder = Path(os.environ[metrics.VARIABLE])
    metrics.enable(SimpleNamespace(disable_log_stats=False))
    assert folder == Path(os.environ[metrics.VARIABLE])
    assert os.environ[metrics.RAY_VARIABLES] == f"OTHER,{metrics.VARIABLE}"
    metrics.export(CONFIG, DraftClock(None, metered=True), Tally(("english",)))
    while not (folder / "3.prom").exists():
        pass
    page = generate_latest(REGISTRY).decode()
    assert 'mtpc_requests_total{engine="3",model_name="chat",vocabulary="english"} 0.0' in page
    (info,) = (sample for sample in parse(page) if sample.name == INFO)
    assert info.value == 1
    assert info.labels == {
        "model_name": "chat",
        "engine": "3",
        "drafter": str(DRAFTER),
        "method": "mtpc",
        "num_drafts": "5",
        "copy": "true",
        "language": "none",
        "draft_sample_method": "greedy",
    }


def test_several_processes_that_serve_the_page_have_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(metrics.PROMETHEUS_FOLDER, str(tmp_path))
    monkeypatch.setattr(metrics, "Exporter", lambda *given: SimpleNamespace(start=lambda: pages.append(given[3:])))
    pages: list[Any] = []
    metrics.enable(SimpleNamespace(disable_log_stats=False))
    metrics.export(CONFIG, None, None)
    assert pages == [(None, NO_INFO)]


@pytest.mark.parametrize("how", [None, signal.SIGTERM, signal.SIGKILL], ids=["", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_when_the_process_ends(how: signal.Signals | None, tmp_path: Path) -> None:
    """Not of one that forked, either."""
    end = "" if how is None else f"os.kill(os.getpid(), {int(how)}); time.sleep(60)"
    code = f"""
import os, time
from types import SimpleNamespace
from vllm_mtpc import metrics
metrics.enable(SimpleNamespace(disable_log_stats=False))
if not os.fork():
    os._exit(0)
os.wait()
print(os.environ[metrics.VARIABLE], os.path.isdir(os.environ[metrics.VARIABLE]), flush=True)
{end}
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == (0 if how is None else -how)
    assert done.stdout.split()[1] == "True"
    folder = Path(done.stdout.split()[0])
    deadline = time.monotonic() + 60
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert folder.parent == tmp_path and not folder.exists()
