"""What an engine's counters of drafts say: acceptance length and rates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class DraftCounters:
    """Counts since a server started, between two readings, or of some answers.

    A draft is one draft of one request, verified in one step of the engine.  Where one of two counts has fewer
    positions, nothing was accepted at its missing ones.
    """

    drafts: float = 0
    draft_tokens: float = 0
    accepted: float = 0
    accepted_at: tuple[float, ...] = ()  # [K] drafts of which at least this many tokens were accepted

    def since(self, earlier: DraftCounters) -> DraftCounters:
        """What was counted after an earlier reading of the same server."""
        pairs = zip_longest(self.accepted_at, earlier.accepted_at, fillvalue=0.0)
        return DraftCounters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted - earlier.accepted,
            tuple(now - then for now, then in pairs),
        )

    def __add__(self, other: DraftCounters) -> DraftCounters:
        """Counts of two intervals together."""
        return DraftCounters(
            self.drafts + other.drafts,
            self.draft_tokens + other.draft_tokens,
            self.accepted + other.accepted,
            tuple(map(sum, zip_longest(self.accepted_at, other.accepted_at, fillvalue=0.0))),
        )

    @property
    def acceptance_length(self) -> float:
        """Tokens that one step of the target brings: 1 (its own) + accepted drafts.  NaN without a draft."""
        return 1 + _ratio(self.accepted, self.drafts)

    @property
    def marginal_rates(self) -> tuple[float, ...]:
        """[K] share of all drafts whose token at this position was accepted."""
        return tuple(_ratio(count, self.drafts) for count in self.accepted_at)

    @property
    def conditional_rates(self) -> tuple[float, ...]:
        """[K] share accepted at this position among the drafts accepted up to the position before."""
        reached = (self.drafts, *self.accepted_at)[: len(self.accepted_at)]
        return tuple(_ratio(count, before) for count, before in zip(self.accepted_at, reached, strict=True))


NO_DRAFTS = DraftCounters()


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
