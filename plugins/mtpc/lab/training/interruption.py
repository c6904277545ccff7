"""Ctrl-C in a training that can be continued: it ends after the update in progress."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Note the first SIGINT or SIGTERM instead of ending this process; the second one ends it.

    Signals that this process ignores stay ignored.

    Yields:
        A function that returns whether one has come.
    """
    stopped = Event()
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        stopped.set()
        restore()

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield stopped.is_set
    finally:
        restore()
