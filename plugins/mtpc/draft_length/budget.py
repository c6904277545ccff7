"""How many tokens a drafter may draft itself in a step, and what part of its time they take."""

from __future__ import annotations

from dataclasses import dataclass

# In passes, what the first one takes: in vLLM on two cores, SmolLM2's FastMTP layer takes 1.7, 2.6 and 3.4 ms for one,
# two and three tokens.
FIRST_PASS = 2.0


@dataclass(frozen=True)
class Own:
    """Tokens that the drafter itself drafts.

    count: of a whole draft.  serial: of these the first, which take a pass of the drafter each; the others take one
    together.  further: passes that may follow a whole draft, where no others do.  spared: in passes, what of the first
    one is no drafting, as every step takes it.
    """

    count: int
    serial: int = 0
    further: int = 0
    spared: float = 0.0

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

    def tried(self, most: int) -> int:
        """Tokens, at most so many, that show what drafting takes: of one pass, of two where the first is spared."""
        choices = self.choices(most)
        return choices[min(2 if self.spared else 1, len(choices) - 1)]

    def up_to(self, chosen: int, most: int) -> int:
        """What a step that was given one of the `choices` may come to, where after each pass it is asked again."""
        return min(self.most, most) if chosen and self.by_pass else chosen

    def share(self, drafts: int) -> float:
        """Of the time of a whole draft, what so many tokens take."""
        return (self._taken(drafts) - self.spared) / self._taken(self.count) if drafts else 0.0

    def _taken(self, drafts: int) -> float:
        """In passes: all but the first are taken to be as long."""
        passes = drafts if self.by_pass else min(drafts, self.serial) + (drafts > self.serial)
        return FIRST_PASS + passes - 1
