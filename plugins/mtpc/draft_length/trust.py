"""How much of what drafts were foretold to bring has come true, of those that were chosen.

Of many tokens that may be drafted those are drafted that look likeliest, and the likeliest of many look likelier than
they are, the more so the fewer of many are taken: in a full batch that would make drafts longer than pays.
"""

from __future__ import annotations

PRIOR = 20.0  # tokens: so many had come true of as many at first
KEPT, KEPT_IDLY = 0.99, 0.998  # of what was seen, after another draft, and after another step of many requests


class Trust:
    """A factor, at most 1, on what drafts are foretold to bring; it goes back to 1 while many get no drafts."""

    def __init__(self) -> None:
        self._foretold = self._true = 0.0

    @property
    def factor(self) -> float:
        """What was accepted over what had been foretold."""
        return min(1.0, (PRIOR + self._true) / (PRIOR + self._foretold))

    def learn(self, foretold: float, true: int) -> None:
        """A draft that was foretold to bring so many accepted tokens has brought so many."""
        self._foretold, self._true = KEPT * self._foretold + foretold, KEPT * self._true + true

    def step(self) -> None:
        """The lengths of another step of many requests are chosen."""
        self._foretold, self._true = KEPT_IDLY * self._foretold, KEPT_IDLY * self._true
