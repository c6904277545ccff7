"""The correction of predicted acceptance: accepted draft tokens over predicted ones."""

from __future__ import annotations

PRIOR = 20.0  # tokens counted as predicted and accepted at first
DRAFT_DECAY, STEP_DECAY = 0.99, 0.998  # factors on the counts after each draft and each decoding step


class AcceptanceCorrection:
    """A factor on predicted acceptance, at most 1.

    The most probable of many draft tokens are drafted, and their probabilities are overestimated on average.
    Without a correction the drafts of a large batch would be too long.
    While nothing is drafted, the factor returns to 1.

    Call `step` once in each decoding step and `learn` for each draft that was verified.
    """

    def __init__(self) -> None:
        self._predicted = self._observed = 0.0

    @property
    def factor(self) -> float:
        """Observed over predicted accepted tokens."""
        return min(1.0, (PRIOR + self._observed) / (PRIOR + self._predicted))

    def learn(self, predicted: float, observed: int) -> None:
        """Update with the outcome of one draft.

        Args:
            predicted: Predicted number of accepted draft tokens.
            observed: Number of accepted draft tokens.
        """
        self._predicted, self._observed = (
            DRAFT_DECAY * self._predicted + predicted,
            DRAFT_DECAY * self._observed + observed,
        )

    def step(self) -> None:
        """Decay the observations, once in each decoding step."""
        self._predicted, self._observed = STEP_DECAY * self._predicted, STEP_DECAY * self._observed
