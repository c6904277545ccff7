"""The drafting clock: figures on disk where asked for, nothing otherwise."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mtpc.metrics.draft_clock import VARIABLE, DraftClock


def at_times(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """What the clocks read, one after the other."""
    readings = iter(times)
    monkeypatch.setattr(DraftClock, "_now", lambda self: next(readings))


def test_counts_calls_and_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DraftClock(tmp_path / "times.json")
    at_times(monkeypatch, 10.0, 10.5, 20.0, 20.25, 30.0, 34.0)
    for _ in range(3):
        with clock:
            pass
    clock.write()
    assert json.loads((tmp_path / "times.json").read_text()) == {"drafts": 3, "seconds": 4.75, "parts": {}}
    assert list(tmp_path.iterdir()) == [tmp_path / "times.json"]


def test_time_goes_by_between_the_readings(tmp_path: Path) -> None:
    clock = DraftClock(tmp_path / "times.json")
    with clock:
        pass
    assert clock.seconds > 0


def test_what_belongs_to_a_draft_that_is_counted_adds_seconds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = DraftClock(tmp_path / "times.json")
    at_times(monkeypatch, *(0.0, 1.0, 2.0, 4.0) * 3)
    for _ in range(3):
        with clock:
            pass
        with clock.resumed():
            pass
    assert (clock.drafts, clock.seconds) == (3, 9.0)
    silent = DraftClock(None)
    with silent.resumed():
        silent.lap("draft step 1")
    assert (silent.seconds, silent.parts) == (0, {})


def test_a_call_tells_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DraftClock(tmp_path / "times.json")
    at_times(monkeypatch, 0.0, 1.0, 3.0, 3.5, 10.0, 14.0, 15.0)
    with clock:
        clock.lap("draft step 1")
        clock.lap("parallel")
    clock.lap("parallel")  # of no call
    with clock.resumed():
        clock.lap("draft step 1")
    assert (clock.drafts, clock.seconds, clock.parts) == (1, 8.5, {"draft step 1": 5.0, "parallel": 2.0})


class Device:
    """Fake of ``torch.cuda``: each event comes a second after the one before, once the device has reached it.

    at_exit: what the process calls when it ends.
    """

    def __init__(self) -> None:
        self.recorded = self.reached = self.waits = 0
        self.at_exit: list[Callable[[], None]] = []

    def event(self, enable_timing: bool) -> Event:
        """Return an event that is not recorded yet."""
        assert enable_timing
        return Event(self)

    def synchronize(self) -> None:
        """Let the device reach all that is recorded."""
        self.waits += 1
        self.reached = self.recorded


class Event:
    """Fake of ``torch.cuda.Event``."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def record(self) -> None:
        """Now."""
        self.device.recorded += 1
        self.at = self.device.recorded

    def query(self) -> bool:
        """Whether the device has come so far."""
        return self.at <= self.device.reached

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds."""
        assert later.query()
        return 1000.0 * (later.at - self.at)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU."""
    made = Device()
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(atexit, "register", made.at_exit.append)
    return made


@pytest.mark.parametrize("written", [False, True])
def test_no_call_waits_for_the_device(
    written: bool, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtpc.metrics.draft_clock.WRITE_EVERY", 0.0)
    file = tmp_path / "times.json"
    clock = DraftClock(file if written else None, "cuda", metered=not written)
    for drafts, seconds in ((0, 0), (1, 2.0)):  # the second call reads the first one's events
        with clock:
            clock.lap("parallel")
        assert (clock.drafts, clock.seconds, clock.parts) == (drafts, seconds, {"parallel": 1.0} if drafts else {})
        assert not written or json.loads(file.read_text())["drafts"] == drafts
        device.reached = 3
    assert device.waits == 0


def test_the_end_of_the_process_counts_every_call(device: Device, tmp_path: Path) -> None:
    clock = DraftClock(tmp_path / "times.json", "cuda")
    for _ in range(2):
        with clock:
            pass
    device.at_exit[0]()
    assert json.loads((tmp_path / "times.json").read_text()) == {"drafts": 2, "seconds": 2.0, "parts": {}}
    assert device.waits == 1


def test_what_was_written_a_moment_ago_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file = DraftClock(tmp_path / "times.json"), tmp_path / "times.json"
    ends = iter((10.5, 10.625, 10.75))
    monkeypatch.setattr(
        "mtpc.metrics.draft_clock.time", SimpleNamespace(monotonic=partial(next, ends), perf_counter=float)
    )
    for drafts in (1, 1, 3):
        with clock:
            pass
        assert json.loads(file.read_text())["drafts"] == drafts


def test_writes_now_and_then_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpc.metrics.draft_clock.WRITE_EVERY", 0.0)
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
