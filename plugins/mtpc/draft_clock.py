"""Measures what drafting costs inside an engine, where `mtpc bench` asks for it."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch

VARIABLE = "MTPC_DRAFT_TIMES"
WRITE_EVERY = 0.2  # seconds


class DraftClock:
    """A context manager around each drafting call; it does nothing unless a file is named.

    The file holds ``{"drafts": calls, "seconds": wall time inside them, "parts": seconds by the name of a part}``,
    replaced whole at most every `WRITE_EVERY` seconds and when the process ends.  Only then does it wait for the GPU
    before and after a call and each of its parts.
    """

    def __init__(self, file: Path | None, device: torch.device | str = "cpu") -> None:
        self.file, self.waits = file, torch.device(device).type == "cuda"
        self.drafts, self.seconds, self.parts = 0, 0.0, dict[str, float]()
        self.started = self.written = 0.0
        self.last: float | None = None  # reading in the call that is under way; None: none is
        if file is not None:
            atexit.register(self.write)

    @classmethod
    def from_environment(cls, device: torch.device | str, *ranks: int | None) -> DraftClock:
        """The clock that ``MTPC_DRAFT_TIMES`` asks for.

        ranks: of this process, tensor-parallel and data-parallel; only where all are 0 (or None) is one kept.
        """
        name = os.environ.get(VARIABLE)
        return cls(Path(name) if name and not any(ranks) else None, device)

    def __enter__(self) -> None:
        if self.file is not None:
            self.started = self.last = self._now()

    def lap(self, part: str) -> None:
        """Inside a call: what has passed since its start or its last lap was this part."""
        if self.last is not None:
            now = self._now()
            self.parts[part] = self.parts.get(part, 0.0) + now - self.last
            self.last = now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(1)

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Around what belongs to a draft that is counted already: its seconds are added."""
        self.__enter__()
        try:
            yield
        finally:
            self._stop(0)

    def _stop(self, drafts: int) -> None:
        if self.file is None:
            return
        now = self._now()
        self.last = None
        self.drafts += drafts
        self.seconds += now - self.started
        if now - self.written > WRITE_EVERY:
            self.written = now
            self.write()

    def _now(self) -> float:
        if self.waits:
            torch.cuda.synchronize()
        return time.perf_counter()

    def write(self) -> None:
        """Replace the file by the present figures."""
        assert self.file is not None
        draft = self.file.with_name(f"{self.file.name}.new")
        draft.write_text(json.dumps({"drafts": self.drafts, "seconds": self.seconds, "parts": self.parts}))
        draft.replace(self.file)
