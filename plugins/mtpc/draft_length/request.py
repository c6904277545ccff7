"""What becomes of the drafts of one request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from mtpc.draft_length.trust import Trust
from mtpc.prompt_lookup.request import CopyRequest
from mtpc.prompt_lookup.shift import Shift
from mtpc.prompt_lookup.table import CopyTable

FOLLOWS, FORGETS = 0.03, 0.02  # of how often the drafter's tokens are accepted: after each of them, and in rest


class Request:
    """A request: its text, and what becomes of the drafter's drafts in it.

    tenant, before: whose it is, and what of the same tenant may be copied, see `Store`.  sure: corrects the
    drafter's own probability of the tokens that it drafts.  typical: how often one of them is accepted, to judge by
    before it drafts; while it does not draft, that goes back to ``at_first``.  expected: who learns what becomes of the
    draft under way, and how many accepted tokens each of them has foretold.  missed: what the target has said while
    nobody looked, see `mtpc.draft_length.rest`.
    """

    def __init__(
        self,
        table: CopyTable,
        prompt: Sequence[int],
        tenant: str | None = None,
        before: Sequence[int] = (),
        greedy: bool = True,
    ) -> None:
        self.copy, self.tenant = CopyRequest(table, prompt, before), tenant
        self.at_first = table.typical[not greedy]
        self.sure, self.typical = Shift(), self.at_first
        self.expected: list[tuple[Trust, float]] = []
        self.missed: list[int] = []
        self._drafted: tuple[list[int], list[float]] = [], []

    def foreseen(self, copied: Sequence[float], own: int) -> tuple[list[float], list[float]]:
        """Chances that tokens are reached: of so many of the drafter's own, before it drafts, and of copies alone.

        copied: of what would be copied, each after those before.
        """
        drafted = [max(chance, self.typical) for chance in copied[:own]]
        return list(accumulate(drafted, mul)), list(accumulate(copied, mul)) if copied[0] else []

    def drafted(self, tokens: list[int], chances: list[float]) -> None:
        """Remember what the drafter drafted, with corrected chances."""
        self._drafted = tokens, chances

    def said(self, tokens: Sequence[int]) -> None:
        """What the target has said since."""
        drafted, chances = self._drafted
        self.sure.learn(tokens, drafted, chances)
        for token, foretold in zip(tokens, drafted, strict=False):
            self.typical += FOLLOWS * ((token == foretold) - self.typical)
            if token != foretold:
                break
        if not drafted:
            self.typical += FORGETS * (self.at_first - self.typical)
        self._drafted = [], []
        self.copy.append([*self.missed, *tokens] if self.missed else tokens)
        self.missed = []
