"""Reads the time that an engine spent on drafting, which `mtpc.metrics.draft_clock` writes to a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class DraftTimes(NamedTuple):
    """Time that an engine spent on drafting since it started.

    Attributes:
        calls: Number of drafting calls.
        seconds: Wall time of all calls.
        parts: Wall time in seconds by part of a call, see `mtpc.metrics.draft_clock`.
    """

    calls: int = 0
    seconds: float = 0.0
    parts: Mapping[str, float] = {}


def read_draft_times(file: Path | None) -> DraftTimes:
    """Read the file that ``MTPC_DRAFT_TIMES`` names.

    Args:
        file: The file; None where drafting is not timed.

    Returns:
        The times; zeros before the first draft, or where drafting is not timed.
    """
    if file is None or not file.exists():
        return DraftTimes()
    values = json.loads(file.read_text())
    return DraftTimes(int(values["drafts"]), float(values["seconds"]), values["parts"])
