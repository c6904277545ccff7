"""What steps of the batch at hand take: by a table, and by the clock where that corrects it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mtpc.draft_length.choice import Prices
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.measured import StepTimes

KNOWN = 1 << 18  # numbers of all prices that are kept, of 32 bytes: of more, the last ones asked for


class Timed:
    """Asked of steps of so many requests, all of which have a temperature of 0 or none has.

    table: what they take.  longest: tokens of a draft.  times: correct that; None: it is believed.
    """

    def __init__(self, table: StepCost, longest: int, times: StepTimes | None) -> None:
        self.table, self.longest, self.times = table, longest, times
        self._known: dict[tuple[bool, bool, int], Prices] = {}
        self._numbers = 0

    def begin(self, greedy: bool) -> None:
        """What the target has said in a step is known."""
        self.greedy = greedy
        self._now: Prices | None = None
        self._skips: bool | None = None
        if self.times is not None:
            self.times.begin()

    def prices(self, rows: int) -> Prices:
        """Of steps like this one, as far as they are known."""
        if self._now is None:
            cost = self.table.of(self.greedy) if self.times is None else self.times.cost(rows, self.greedy)
            self._now = self._prices(cost, rows, self.greedy)
        return self._now

    def by_table(self, rows: int) -> Prices:
        """The same, whatever the clock says."""
        return self._prices(self.table.of(self.greedy), rows, self.greedy)

    def _prices(self, cost: StepCost, rows: int, greedy: bool) -> Prices:
        key = cost is self.table.of(greedy), greedy, rows
        known = self._known.pop(key, None)
        if known is None or known.cost is not cost:
            self._numbers -= 0 if known is None else len(known.drafted)
            known = Prices(cost, rows, rows * self.longest)
            self._numbers += len(known.drafted)
            while self._known and self._numbers > KNOWN:
                self._numbers -= len(self._known.pop(next(iter(self._known))).drafted)
        self._known[key] = known  # the last one asked for is at the end
        return known

    def undrafted(self, rows: int) -> bool:
        """Whether nothing is to be drafted now, to see what such a step takes."""
        if self._skips is None:
            self._skips = self.times is not None and self.times.undrafted(rows, self.greedy)
        return self._skips

    def tries(self, rows: int) -> bool:
        """Whether the drafter is to draft now, to see what that takes; see `StepTimes.tries`."""
        return self.times is not None and self.times.tries(rows, self.greedy)

    def knows_drafter(self, rows: int) -> bool:
        """Whether it was seen what the drafter takes, so that not only the table says so."""
        return self.times is not None and self.times.knows_drafter(rows, self.greedy)

    def end(self, names: Collection[int], drafts: Mapping[int, int], share: float) -> None:
        """The drafts of a step are about to be verified; see `StepTimes.end`."""
        if self.times is not None:
            self.times.end(self.by_table(len(names)), self.greedy, names, drafts, share)

    def skip(self, greedy: bool, names: Collection[int], drafts: Mapping[int, int]) -> None:
        """Instead of `begin` and `end`, of a step that nobody looks at."""
        if self.times is not None:
            self.times.skip(self._prices(self.table.of(greedy), len(names), greedy), greedy, names, drafts)
