"""Learning rate schedule: warm-up, plateau and decay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decay = Literal["linear", "cosine"]


@dataclass(frozen=True)
class Schedule:
    """Learning rate of each update. A decay that begins within the warm-up multiplies it.

    Attributes:
        peak: Learning rate of the plateau.
        updates: Number of updates.
        warmup: Updates over which the rate rises linearly to the peak.
        decay_from: Update from which the rate falls.
        decay: Shape of the decay, "linear" or "cosine" (half a period).
        floor: Rate at the end, as a share of the peak.
    """

    peak: float
    updates: int
    warmup: int
    decay_from: float
    decay: Decay
    floor: float = 0.0

    def rate(self, update: float) -> float:
        """Return the rate of update 0..updates - 1; fractions are allowed."""
        rise = min(1.0, (update + 1) / self.warmup) if self.warmup else 1.0
        fallen = max(0.0, (update - self.decay_from) / max(1.0, self.updates - self.decay_from))
        if self.decay == "cosine":
            fallen = 0.5 * (1 - math.cos(math.pi * fallen))
        return self.peak * rise * (1 - (1 - self.floor) * fallen)
