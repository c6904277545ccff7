"""What is known of one request when its next draft is made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from mtpc.prompt_lookup.calibration import Calibration
from mtpc.prompt_lookup.request import CopyRequest
from mtpc.prompt_lookup.table import CopyTable

# How fast the acceptance rate follows what was accepted, and goes back to its prior while the drafter drafts nothing.
FOLLOWS, FORGETS = 0.03, 0.02


class DraftedRequest:
    """The text of a request, and how often the drafter's tokens are accepted in it.

    One decoding step: `said` with the target's tokens, then `drafted` or `drafted_tree` with what it is to verify.

    Attributes:
        copy: The text, for prompt lookup; None: nothing is copied.
        tenant: Whose request it is, see `mtpc.prompt_lookup.store.Store`.
        confidence: Corrects the drafter's probability of the tokens that it drafts.
        rate: How often a draft token is accepted where those before it were.
        heard: For the engine: how many of its tokens were told.
        predicted: Accepted tokens that the draft under way is expected to bring; None: it was not predicted.
    """

    def __init__(
        self, table: CopyTable, copy: CopyRequest | None, tenant: str | None = None, greedy: bool = True
    ) -> None:
        self.copy, self.tenant = copy, tenant
        self.rate = self._prior = table.typical[not greedy]
        self.confidence = Calibration()
        self.heard = 0
        self.predicted: float | None = None
        self._tokens: list[int] = []
        self._chances: list[float] = []
        self._depth = 0

    def foreseen(self, copied: Sequence[float], most: int) -> tuple[list[float], list[float]]:
        """Predict acceptance before anything is drafted.

        Args:
            copied: Chances of the tokens that would be copied, each given those before it.
            most: Tokens of the drafter at most.

        Returns:
            The probabilities that the drafter's first tokens are accepted, each with all before it, and the same of
            copies alone.
        """
        drafted = [max(chance, self.rate) for chance in copied[:most]]
        return list(accumulate(drafted, mul)), list(accumulate(copied, mul)) if copied[0] else []

    def drafted(self, tokens: list[int], chances: list[float]) -> None:
        """Remember the drafter's tokens that are verified next, and the chances that they were given."""
        self._tokens, self._chances = tokens, chances

    def drafted_tree(self, depth: int) -> None:
        """Remember that a tree of such a depth is verified next."""
        self._depth = depth

    def said(self, tokens: Sequence[int]) -> None:
        """Learn from the target's tokens of the last step."""
        self.confidence.learn(tokens, self._tokens, self._chances)
        accepted = [token == drafted for token, drafted in zip(tokens, self._tokens, strict=False)]
        if self._depth:
            accepted = [place < len(tokens) - 1 for place in range(min(self._depth, len(tokens)))]
        for right in accepted:
            self.rate += FOLLOWS * (right - self.rate)
            if not right:
                break
        if not accepted:
            self.rate += FORGETS * (self._prior - self.rate)
        self._tokens, self._chances, self._depth = [], [], 0
        if self.copy is not None:
            self.copy.append(tokens)
