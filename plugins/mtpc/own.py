"""How many tokens a drafter may draft itself in a step, and what part of its time they take."""

from __future__ import annotations

from dataclasses import dataclass

# In passes, what drafting takes before the first: in vLLM on two cores, SmolLM2's FastMTP layer takes 1.7, 2.6 and 3.4
# ms for one, two and three tokens.
BEFORE = 1.0


@dataclass(frozen=True)
class Own:
    """Tokens that the drafter itself drafts.

    count: at most.  serial: of these the first, which take a pass of the drafter each; the others take one together.
    """

    count: int
    serial: int = 0

    def choices(self, most: int) -> list[int]:
        """Numbers of tokens that a step may be given, at most so many: none, and what each pass completes."""
        serial = min(self.serial, most)
        rest = min(self.count, most)
        return [*range(serial + 1), *([rest] if rest > serial else [])]

    def share(self, drafts: int) -> float:
        """Of the time of all of them, what so many take: all passes are taken to be as long."""
        return (BEFORE + self._passes(drafts)) / (BEFORE + self._passes(self.count)) if drafts else 0.0

    def _passes(self, drafts: int) -> int:
        return min(drafts, self.serial) + (drafts > self.serial)
