"""An engine's counters of draft tokens, and the acceptance length and rates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class DraftCounters:
    """Counts since a server started, between two readings, or of some responses.

    A draft is one draft of one request, verified in one decoding step.  Where one of two counts has fewer positions,
    its missing positions count as 0.

    Attributes:
        drafts: Number of drafts.
        draft_tokens: Number of draft tokens.
        accepted: Number of accepted draft tokens.
        accepted_at: [K] for each position, the drafts that were accepted at least up to it.
    """

    drafts: float = 0
    draft_tokens: float = 0
    accepted: float = 0
    accepted_at: tuple[float, ...] = ()

    def since(self, earlier: DraftCounters) -> DraftCounters:
        """Return what was counted after an earlier reading of the same server."""
        pairs = zip_longest(self.accepted_at, earlier.accepted_at, fillvalue=0.0)
        return DraftCounters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted - earlier.accepted,
            tuple(now - then for now, then in pairs),
        )

    def __add__(self, other: DraftCounters) -> DraftCounters:
        """Return the counts of two intervals together."""
        return DraftCounters(
            self.drafts + other.drafts,
            self.draft_tokens + other.draft_tokens,
            self.accepted + other.accepted,
            tuple(map(sum, zip_longest(self.accepted_at, other.accepted_at, fillvalue=0.0))),
        )

    @property
    def acceptance_length(self) -> float:
        """Mean tokens per target forward pass that verifies a draft, bonus token included; NaN without a draft."""
        return 1 + _ratio(self.accepted, self.drafts)

    @property
    def marginal_rates(self) -> tuple[float, ...]:
        """[K] marginal acceptance rates: the share of all drafts that were accepted up to each position."""
        return tuple(_ratio(count, self.drafts) for count in self.accepted_at)

    @property
    def conditional_rates(self) -> tuple[float, ...]:
        """[K] conditional acceptance rates: the share accepted at each position of those accepted up to the last."""
        reached = (self.drafts, *self.accepted_at)[: len(self.accepted_at)]
        return tuple(_ratio(count, before) for count, before in zip(self.accepted_at, reached, strict=True))


NO_DRAFTS = DraftCounters()


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
