"""State of one request for its next draft: its text and its acceptance so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from mtpc.draft import MAX_DRAFTS
from mtpc.prompt_lookup.request import CopyRequest

PRIOR_RATE = 0.6  # acceptance rate of a request's draft tokens at first
# How fast the acceptance rate follows observations, and how fast it returns to its prior while nothing is drafted.
LEARNING_RATE, FORGETTING_RATE = 0.03, 0.02


class DraftedRequest:
    """The text of a request, and the acceptance rate of the drafter's tokens in it.

    One decoding step: `observe` the target's tokens, then `drafted` or `drafted_tree` with what it is to verify.

    Attributes:
        copy: The text, for prompt lookup; None: prompt lookup is off.
        tenant: Tenant of the request; see `mtpc.prompt_lookup.store.OutputStore`.
        limit: Most draft tokens of the request, see `mtpc.draft_length.limit`.
        rate: Acceptance rate of a draft token where those before it were accepted.
        emitted: Number of tokens that were observed.

    Args:
        copy: The text, for prompt lookup; None: prompt lookup is off.
        tenant: Tenant of the request.
        limit: Most draft tokens of the request.
    """

    def __init__(
        self,
        copy: CopyRequest | None,
        tenant: str | None = None,
        limit: int = MAX_DRAFTS,
    ) -> None:
        self.copy, self.tenant, self.limit = copy, tenant, limit
        self.rate, self.emitted = PRIOR_RATE, 0
        self._tokens: list[int] = []
        self._depth = 0

    def predict_acceptance(self, copied: Sequence[float], most: int) -> tuple[list[float], list[float]]:
        """Predict acceptance before anything is drafted.

        Args:
            copied: Probabilities that copying continues to each proposed token; only the first `limit` are read.
            most: Tokens of the drafter at most.

        Returns:
            Probabilities that the drafter's tokens are accepted, each with all before it; the same of copied tokens.
        """
        copied = copied[: self.limit]
        drafted = [max(chance, self.rate) for chance in copied[:most]]
        return list(accumulate(drafted, mul)), list(accumulate(copied, mul)) if any(copied[:1]) else []

    def drafted(self, tokens: list[int]) -> None:
        """Record the drafter's tokens that are verified next."""
        self._tokens = tokens

    def drafted_tree(self, depth: int) -> None:
        """Record that a tree of this depth is verified next."""
        self._depth = depth

    def observe(self, tokens: Sequence[int]) -> None:
        """Learn from the tokens that the target emitted in the last step."""
        accepted = [token == drafted for token, drafted in zip(tokens, self._tokens, strict=False)]
        if self._depth:
            accepted = [position < len(tokens) - 1 for position in range(min(self._depth, len(tokens)))]
        for is_accepted in accepted:
            self.rate += LEARNING_RATE * (is_accepted - self.rate)
            if not is_accepted:
                break
        if not accepted:
            self.rate += FORGETTING_RATE * (PRIOR_RATE - self.rate)
        self._tokens, self._depth = [], 0
        self.emitted += len(tokens)
        if self.copy is not None:
            self.copy.append(tokens)
