"""Which texts are held out from training: a fixed share, by a hash that every run agrees on."""

from __future__ import annotations

import hashlib

HELDOUT_PERCENT = 4


def is_heldout(name: str) -> bool:
    """Return whether a text is held out.

    Args:
        name: Name of the text, or the question itself.
    """
    return hashlib.sha256(name.encode()).digest()[0] * 100 < HELDOUT_PERCENT * 256
