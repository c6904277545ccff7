"""How many draft tokens are the drafter's, and which part of its drafting time they take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DraftBudget:
    """The tokens that a drafter drafts itself; further draft tokens come from prompt lookup.

    Attributes:
        tokens: Draft tokens of both parts together in a step.
        steps: Draft tokens of the autoregressive part, one per draft step; the parallel part drafts the others in one
            more.
    """

    tokens: int
    steps: int = 0

    def choices(self, longest: int) -> list[int]:
        """Return the numbers of tokens that the drafter can draft: 0, and those after each of its draft steps.

        Args:
            longest: Tokens of a draft at most.
        """
        steps, tokens = min(self.steps, longest), min(self.tokens, longest)
        return [*range(steps + 1), *([tokens] if tokens > steps else [])]

    def share(self, tokens: int) -> float:
        """Return the fraction of a whole draft's time that drafting some tokens takes; all draft steps count equally.

        Args:
            tokens: Tokens that the drafter drafts.
        """
        return self._passes(tokens) / self._passes(self.tokens) if tokens else 0.0

    def _passes(self, tokens: int) -> int:
        return min(tokens, self.steps) + (tokens > self.steps)
