"""Where this project's code waits for a GPU."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import TracebackType

import torch

import mtpc

OURS = tuple(str(Path(mtpc.__file__).parents[1] / room / "_")[:-1] for room in ("mtpc", "vllm_mtpc", "sglang_mtpc"))


class Waits:
    """Lines that wait while this is entered, once they are counted; nothing without a GPU.

    Lines of others are left out: what an engine waits for is its own.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.counting = False

    def count(self) -> None:
        """From now on."""
        self.counting = torch.cuda.is_available()

    def __enter__(self) -> None:
        if self.counting:
            self.recorded = warnings.catch_warnings(record=True)
            self.warnings = self.recorded.__enter__()
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.counting:
            torch.cuda.set_sync_debug_mode("default")
            self.recorded.__exit__(kind, error, trace)
            waits = (warning for warning in self.warnings if "synchroniz" in str(warning.message))
            lines = {f"{warning.filename}:{warning.lineno}" for warning in waits}
            self.found += sorted(line for line in lines if line.startswith(OURS) and line not in self.found)
