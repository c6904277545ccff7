"""Measures drafting time inside an engine, for ``mtpc bench`` and the metrics page."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import torch

from mtpc.files.replacing import replacing

VARIABLE = "MTPC_DRAFT_TIMES"
WRITE_EVERY = 0.2  # seconds

Mark = float | torch.cuda.Event  # a time in seconds, or on the GPU
Laps = list[tuple[str | None, Mark]]  # parts and when they ended; None: start or end of the call


class DraftClock:
    """A context manager around each drafting call; it does nothing unless a file is named or metrics are on.

    Inside a call, `lap` ends the part that has just run.

    The file contains ``{"drafts": calls, "seconds": time inside them, "parts": seconds by part}``.
    It is replaced at most every `WRITE_EVERY` seconds and when the process ends.
    On a GPU, times are those of events on its stream, which a later call reads once they have happened.
    No call waits for the GPU.

    Attributes:
        on: Whether anything is measured.
        drafts: Number of calls.
        seconds: Time inside calls, seconds.
        parts: Seconds by part.

    Args:
        file: File to write; None: none.
        device: Device that drafts.
        metered: Whether metrics are on.
    """

    def __init__(self, file: Path | None, device: torch.device | str = "cpu", metered: bool = False) -> None:
        self.file, self.on, self.cuda = file, metered or file is not None, torch.device(device).type == "cuda"
        self.drafts, self.seconds, self.parts = 0, 0.0, dict[str, float]()
        self.written = 0.0
        self.laps: Laps = []  # of the present call; empty outside calls
        self.ended = deque[tuple[int, Laps]]()  # drafts and laps that the GPU may not have finished
        if file is not None:
            atexit.register(self._finish)

    @classmethod
    def from_environment(cls, device: torch.device | str, *ranks: int | None, metered: bool = False) -> DraftClock:
        """Return the clock that the variable ``MTPC_DRAFT_TIMES`` configures.

        Args:
            device: Device that drafts.
            *ranks: Ranks of this process, tensor-parallel and data-parallel; a file is written only if all are 0 or
                None.
            metered: Whether metrics are on.
        """
        name = os.environ.get(VARIABLE)
        return cls(Path(name) if name and not any(ranks) else None, device, metered)

    def __enter__(self) -> None:
        if self.on:
            self.laps = [(None, self._now())]

    def lap(self, part: str) -> None:
        """Assign the time since the start of the call or the last lap to a part.

        Args:
            part: Name of the part that has run.
        """
        if self.laps:
            self.laps.append((part, self._now()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(1)

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Measure further work of a draft that is already counted: only its seconds are added."""
        self.__enter__()
        try:
            yield
        finally:
            self._stop(0)

    def _stop(self, drafts: int) -> None:
        if not self.on:
            return
        self.ended.append((drafts, [*self.laps, (None, self._now())]))
        self.laps = []
        self._read()
        if self.file is not None and (now := time.monotonic()) - self.written > WRITE_EVERY:
            self.written = now
            self.write()

    def _read(self) -> None:
        """Count the calls that the GPU has finished."""
        while self.ended and _is_over(self.ended[0][1][-1][1]):
            self._add(*self.ended.popleft())

    def _finish(self) -> None:
        """Count every call and write the file, when the process ends."""
        if self.ended:
            torch.cuda.synchronize()
        self._read()
        self.write()

    def _add(self, drafts: int, laps: Laps) -> None:
        for (_, before), (part, after) in pairwise(laps):
            if part is not None:
                self.parts[part] = self.parts.get(part, 0.0) + _seconds(before, after)
        self.drafts += drafts
        self.seconds += _seconds(laps[0][1], laps[-1][1])

    def _now(self) -> Mark:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def write(self) -> None:
        """Replace the file with the present values."""
        assert self.file is not None
        with replacing(self.file) as unfinished:
            unfinished.write_text(json.dumps({"drafts": self.drafts, "seconds": self.seconds, "parts": self.parts}))


def _is_over(mark: Mark) -> bool:
    return isinstance(mark, float) or mark.query()


def _seconds(before: Mark, after: Mark) -> float:
    if isinstance(before, float) or isinstance(after, float):
        assert isinstance(before, float) and isinstance(after, float)  # both from one clock
        return after - before
    return before.elapsed_time(after) / 1000
