"""The learning rate of every training: a warm-up, a plateau, a decay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decay = Literal["linear", "cosine"]


@dataclass(frozen=True)
class Schedule:
    """The rate of each of ``updates`` updates.

    peak: the rate of the plateau.  warmup: updates in which it rises linearly to the peak.  decay_from: the update from
    which on it falls, as a straight line or as half a cosine, to the share ``floor`` of the peak.  A decay that begins
    in the warm-up multiplies it.
    """

    peak: float
    updates: int
    warmup: int
    decay_from: float
    decay: Decay
    floor: float = 0.0

    def rate(self, update: float) -> float:
        """The rate of update 0..updates - 1, or between two of them."""
        rise = min(1.0, (update + 1) / self.warmup) if self.warmup else 1.0
        fallen = max(0.0, (update - self.decay_from) / max(1.0, self.updates - self.decay_from))
        if self.decay == "cosine":
            fallen = 0.5 * (1 - math.cos(math.pi * fallen))
        return self.peak * rise * (1 - (1 - self.floor) * fallen)
