"""Reads what an engine's drafting clock has written (`mtpc.metrics.draft_clock`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class DraftTimes(NamedTuple):
    """Drafting calls of an engine and the wall seconds inside them, also by part (see `mtpc.metrics.draft_clock`)."""

    calls: int = 0
    seconds: float = 0.0
    parts: Mapping[str, float] = {}


def read_draft_times(file: Path | None) -> DraftTimes:
    """What the adapter wrote into the file named by ``MTPC_DRAFT_TIMES``; zeros before its first draft."""
    if file is None or not file.exists():
        return DraftTimes()
    values = json.loads(file.read_text())
    return DraftTimes(int(values["drafts"]), float(values["seconds"]), values["parts"])
