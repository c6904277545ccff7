"""Counts of drafts become metrics, whoever serves the page."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest

from mtpc.lab.servers.prometheus import parse, total, totals_by
from mtpc.metrics import exporter
from mtpc.metrics.draft_clock import DraftClock
from mtpc.metrics.exporter import METRICS, Exporter
from mtpc.metrics.pages import Pages
from mtpc.metrics.slot_tally import SlotTally
from mtpc.metrics.tally import Tally, Totals

LABELS = {"model_name": "target", "engine": "0"}
NAMES = ("english", "code")


def shown(*pages: Path) -> str:
    """The page of a process that reads these files."""
    registry = CollectorRegistry()
    registry.register(Pages(pages[0].parent))
    return generate_latest(registry).decode()


def test_counts_are_shown_by_vocabulary_and_position(tmp_path: Path) -> None:
    clock, tally, page = DraftClock(None, metered=True), Tally(NAMES), tmp_path / "0.prom"
    exporting = Exporter(LABELS, clock, tally, page)
    assert exporting.update()
    assert total(parse(shown(page)), "mtpc_drafts_total") == 0
    with clock:
        clock.lap("parallel")
    tally.count_choices([None, None, 0, 1], [0, 1, 1, 1])
    tally.count_drafts([(0, 3, 2), (0, 3, 0), (1, 2, 2)])
    assert exporting.update()
    tally.count_drafts([(1, 1, 1)])
    assert exporting.update()
    samples = parse(shown(page))
    assert totals_by(samples, "mtpc_drafts_total", "vocabulary") == {"english": 2, "code": 2}
    assert totals_by(samples, "mtpc_draft_tokens_total", "position") == {"0": 4, "1": 3, "2": 2}
    assert totals_by(samples, "mtpc_accepted_tokens_total", "position") == {"0": 3, "1": 2}
    assert totals_by(samples, "mtpc_accepted_tokens_total", "vocabulary") == {"english": 2, "code": 3}
    assert totals_by(samples, "mtpc_requests_total", "vocabulary") == {"english": 1, "code": 1}
    assert totals_by(samples, "mtpc_vocabulary_changes_total", "vocabulary") == {"english": 0, "code": 1}
    assert total(samples, "mtpc_drafting_calls_total") == 1
    assert (
        0
        < totals_by(samples, "mtpc_drafting_part_seconds_total", "part")["parallel"]
        <= total(samples, "mtpc_drafting_seconds_total")
    )
    assert all(LABELS.items() <= one.labels.items() for one in samples)


def test_engines_of_one_server_are_told_apart(tmp_path: Path) -> None:
    """Also while the file of another one goes."""
    (tmp_path / "2.prom").symlink_to(tmp_path / "gone")
    pages = [tmp_path / f"{engine}.prom" for engine in "01"]
    for engine, page in enumerate(pages):
        tally = Tally(NAMES)
        tally.count_drafts([(0, 1, engine)] * (engine + 1))
        Exporter({**LABELS, "engine": str(engine)}, None, tally, page).update()
    assert totals_by(parse(shown(*pages)), "mtpc_drafts_total", "engine") == {"0": 1, "1": 2}
    assert shown(*pages).count("# TYPE mtpc_drafts_total") == 1


def test_ends_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "EVERY", 0.01)
    folder = tmp_path / "gone"
    Exporter(LABELS, None, Tally(NAMES), folder / "0.prom").start()
    for thread in threading.enumerate():
        if thread.name == "mtpc-metrics":
            thread.join(60)
            assert not thread.is_alive()


def test_names_are_prometheus_own_way() -> None:
    for name, (what, labels) in METRICS.items():
        assert name.startswith("mtpc_")
        assert not name.endswith("_total")
        assert what.endswith(".")
        assert {"model_name", "engine"}.isdisjoint(labels)


def test_slots_are_counted_as_requests_are() -> None:
    torch.manual_seed(0)
    on_host, on_device = Tally(NAMES), SlotTally(NAMES, 3, torch.device("cpu"))
    for _ in range(20):
        before, after, drafted = torch.randint(-1, 2, (5,)), torch.randint(2, (5,)), torch.randint(4, (5,))
        accepted, there = torch.minimum(torch.randint(-1, 4, (5,)), drafted), torch.rand(5) < 0.8
        on_device.count(before, after, drafted, accepted, there)
        rows = list(zip(*(each[there].tolist() for each in (before, after, drafted, accepted)), strict=True))
        on_host.count_choices([None if row[0] < 0 else row[0] for row in rows], [row[1] for row in rows])
        on_host.count_drafts((row[0], row[2], max(row[3], 0)) for row in rows if row[0] >= 0 and row[2])
    assert on_device.totals() == Totals({}, {})
    on_device.begun = True
    assert on_device.totals() == on_host.totals()
