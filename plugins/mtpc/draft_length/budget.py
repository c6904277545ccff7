"""How many tokens of a draft are the drafter's, and what part of its drafting time they take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DraftBudget:
    """The tokens that a drafter drafts itself; what a draft has beyond them is prompt lookup.

    Attributes:
        tokens: Draft tokens of the drafter in a step, both parts together.
        steps: How many of them are the autoregressive part's, which takes one draft step for each; the parallel part
            drafts all others in one more.
    """

    tokens: int
    steps: int = 0

    def choices(self, longest: int) -> list[int]:
        """Return the numbers of tokens that the drafter can be asked for: none, and after each of its draft steps."""
        steps, tokens = min(self.steps, longest), min(self.tokens, longest)
        return [*range(steps + 1), *([tokens] if tokens > steps else [])]

    def share(self, tokens: int) -> float:
        """Return the part of a whole draft's time that so many tokens take; all draft steps count alike."""
        return self._passes(tokens) / self._passes(self.tokens) if tokens else 0.0

    def _passes(self, tokens: int) -> int:
        return min(tokens, self.steps) + (tokens > self.steps)
