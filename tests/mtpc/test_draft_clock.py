"""The drafting clock: figures on disk where asked for, nothing otherwise."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mtpc.draft_clock import VARIABLE, DraftClock


def test_counts_calls_and_seconds(tmp_path: Path) -> None:
    clock = DraftClock(tmp_path / "times.json")
    for _ in range(3):
        with clock:
            time.sleep(0.01)
    clock.write()
    found = json.loads((tmp_path / "times.json").read_text())
    assert found["drafts"] == 3
    assert 0.03 <= found["seconds"] < 1.0
    assert list(tmp_path.iterdir()) == [tmp_path / "times.json"]


def test_what_belongs_to_a_draft_that_is_counted_adds_seconds_alone(tmp_path: Path) -> None:
    clock = DraftClock(tmp_path / "times.json")
    for _ in range(3):
        with clock:
            time.sleep(0.01)
        with clock.resumed():
            time.sleep(0.02)
    assert clock.drafts == 3
    assert clock.seconds >= 0.09
    silent = DraftClock(None)
    with silent.resumed():
        pass
    assert silent.seconds == 0


def test_writes_now_and_then_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpc.draft_clock.WRITE_EVERY", 0.0)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "times.json"))
    with DraftClock.from_environment("cpu", 0, None):
        pass
    assert json.loads((tmp_path / "times.json").read_text())["drafts"] == 1


@pytest.mark.parametrize(("name", "ranks"), [("times.json", (1, 0)), ("times.json", (0, 1)), ("", (0, 0))])
def test_does_nothing_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ranks: tuple[int, int]
) -> None:
    monkeypatch.setenv(VARIABLE, name and str(tmp_path / name))
    clock = DraftClock.from_environment("cpu", *ranks)
    with clock:
        pass
    assert clock.drafts == 0
    assert not list(tmp_path.iterdir())
