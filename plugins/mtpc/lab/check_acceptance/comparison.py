"""Compares observed acceptance rates with expected ones, by position and in total."""

from __future__ import annotations

from typing import Literal

from scipy.stats import binomtest

from mtpc.files.config_model import Strict
from mtpc.lab.evaluation.acceptance import ExpectedCounts
from mtpc.lab.servers.draft_counters import DraftCounters

FALSE_ALARMS = 1e-3  # largest probability that any rate of a correct server is outside of its interval
Result = Literal["as expected", "lower than expected", "higher than expected", "not reached"]


class AcceptanceRate(Strict):
    """An observed acceptance rate with its interval, and the expected one.

    Attributes:
        position: Position in the draft, from 1; None for all positions together.
        verified: Draft tokens that were verified after all draft tokens before them had been accepted.
        accepted: Those that were accepted.
        low: Lower end of the rate's confidence interval.
        high: Its upper end.
        expected: Rate of the reference implementation along the same outputs.
        result: The expected rate's place in the interval; "not reached" where the server or the reference
            implementation reached the position in no step.
    """

    position: int | None
    verified: int
    accepted: int
    low: float
    high: float
    expected: float
    result: Result

    @property
    def rate(self) -> float:
        """The observed rate; 0 where the position was not reached."""
        return self.accepted / max(1, self.verified)


def compare_rates(observed: DraftCounters, expected: ExpectedCounts) -> tuple[AcceptanceRate, ...]:
    """Compare conditional acceptance rates.

    Wilson's intervals hold together with a probability of 1 - `FALSE_ALARMS` (Bonferroni). Given the outputs, draft
    tokens are accepted independently of each other, and greedy ones with certainty. The intervals are thus too wide
    rather than too narrow.

    Args:
        observed: The server's counts. Each draft has K tokens.
        expected: Expected counts along the same outputs, of K positions.

    Returns:
        The rate at each position, then that of all positions together.
    """
    drafts = len(expected.accepted)
    accepted = [round(count) for count in (*observed.accepted_at, *[0] * drafts)][:drafts]
    verified = [round(observed.drafts), *accepted[:-1]]
    rates = expected.rates.conditional
    possible = [True, *(expected.accepted[:-1] > 0).tolist()]
    total = sum(rate * count for rate, count in zip(rates, verified, strict=True)) / max(1, sum(verified))
    confidence = 1 - FALSE_ALARMS / (drafts + 1)
    by_position = zip(range(1, drafts + 1), verified, accepted, rates, possible, strict=True)
    return (
        *(_compared(*each, confidence) for each in by_position),
        _compared(None, sum(verified), sum(accepted), total, True, confidence),
    )


def _compared(
    position: int | None, verified: int, accepted: int, expected: float, possible: bool, confidence: float
) -> AcceptanceRate:
    """Return one rate; ``possible`` is whether the reference implementation reached the position."""
    low, high = 0.0, 1.0
    if verified:
        interval = binomtest(accepted, verified).proportion_ci(confidence, "wilson")
        low, high = float(interval.low), float(interval.high)
    result: Result = "as expected"
    if not (verified and possible):
        result = "not reached"
    elif expected > high:
        result = "lower than expected"
    elif expected < low:
        result = "higher than expected"
    return AcceptanceRate(
        position=position, verified=verified, accepted=accepted, low=low, high=high, expected=expected, result=result
    )
