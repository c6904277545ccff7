"""Whether torchrun started this process, and as which: read from the environment without importing torch."""

from __future__ import annotations

import os


def is_launched() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Return whether this process is the only one, or the first of those that torchrun started."""
    return not is_launched() or os.environ["RANK"] == "0"
