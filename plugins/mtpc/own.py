"""How many tokens a drafter may draft itself in a step, and what part of its time they take."""

from __future__ import annotations

from dataclasses import dataclass

# In passes, what drafting takes before the first: in vLLM on two cores, SmolLM2's FastMTP layer takes 1.7, 2.6 and 3.4
# ms for one, two and three tokens.
BEFORE = 1.0


@dataclass(frozen=True)
class Own:
    """Tokens that the drafter itself drafts.

    count: of a whole draft.  serial: of these the first, which take a pass of the drafter each; the others take one
    together.  further: passes that may follow a whole draft, where no others do.
    """

    count: int
    serial: int = 0
    further: int = 0

    @property
    def most(self) -> int:
        """Tokens of a step at most."""
        return self.count + self.further

    @property
    def by_pass(self) -> bool:
        """Whether each token takes a pass, so that after any of them the drafter may go on or not."""
        return 0 < self.count == self.serial

    def choices(self, most: int) -> list[int]:
        """Numbers of tokens that a step may be given, at most so many: none, and what each pass completes."""
        serial = min(self.serial, most)
        rest = min(self.count, most)
        return [*range(serial + 1), *([rest] if rest > serial else [])]

    def up_to(self, chosen: int, most: int) -> int:
        """What a step that was given one of the `choices` may come to, where after each pass it is asked again."""
        return min(self.most, most) if chosen and self.by_pass else chosen

    def share(self, drafts: int) -> float:
        """Of the time of a whole draft, what so many tokens take: all passes are taken to be as long."""
        return (BEFORE + self._passes(drafts)) / (BEFORE + self._passes(self.count)) if drafts else 0.0

    def _passes(self, drafts: int) -> int:
        return drafts if self.by_pass else min(drafts, self.serial) + (drafts > self.serial)
