"""The one correction of predicted acceptance: what drafts have brought over what they were predicted to bring."""

from __future__ import annotations

PRIOR = 20.0  # tokens: so many had been accepted of as many that were predicted at first
KEPT, KEPT_IDLY = 0.99, 0.998  # of what was seen, after another draft, and after another decoding step


class Trust:
    """A factor, at most 1, on predicted acceptance.

    Of many tokens the likeliest are drafted, and these look likelier than they are, the more so the fewer are taken:
    without a correction the drafts of a full batch would be longer than is worth it.  While nothing is drafted the
    factor goes back to 1.
    """

    def __init__(self) -> None:
        self._predicted = self._observed = 0.0

    @property
    def factor(self) -> float:
        """Accepted over predicted tokens."""
        return min(1.0, (PRIOR + self._observed) / (PRIOR + self._predicted))

    def learn(self, predicted: float, observed: int) -> None:
        """Update with the predicted and the observed number of accepted tokens of a draft."""
        self._predicted, self._observed = KEPT * self._predicted + predicted, KEPT * self._observed + observed

    def step(self) -> None:
        """Forget a little, once in each decoding step."""
        self._predicted, self._observed = KEPT_IDLY * self._predicted, KEPT_IDLY * self._observed
