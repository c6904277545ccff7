"""What steps take in the server at hand: a table of their costs, corrected by the clock.

A table is measured beforehand, often on another day, and a machine drifts.  What drafts add to a step, and what the
drafter takes, is therefore compared with what a step without drafts takes here and now, by the size of batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from mtpc.draft_length.choice import Prices
from mtpc.draft_length.cost import StepCost

WARM_UP = 8  # steps of a size that do not count: what runs for the first time takes longer
EVERY = 16  # looks after which a correction is renewed
KEPT = 0.998  # of what was seen, after another step of a size
PRIOR = 4.0  # steps that draft a token for each request, or take a quarter longer for it: the table counts as so many
LONGEST = 2.0  # times what was expected: what takes longer has been interrupted
FARTHEST = 10.0  # from the table
FIRST, DRAFTED = 16, 200  # steps in a row with drafts, after which one goes by without: at first, and at most
FIRST_TRIAL, SELDOM = 32, 512  # looks after which the drafter has drafted nothing until it tries: at first, at most
WAITING = 128  # steps seen of a size that are still to be learned from, at most
TRIAL = 4  # steps: what runs again after long takes longer


@dataclass
class Size:
    """Of steps of batches of about one size, what the table says and what they take.

    Least squares, in which later steps count more, of seconds = level * (plain + added) + more * added, where the table
    says that a step takes ``plain`` without its drafts, and that these add so much; more / level is taken for nothing
    until enough has been seen.
    """

    steps: int = 0
    undrafted: int = 0  # of these
    in_a_row: int = 0  # that were drafted for
    looks: int = 0
    trials: int = 0
    trying: int = 0  # steps that are left of a trial
    untried: int = 0  # looks in a row after which the drafter has drafted nothing
    drafts: int = 0  # steps in which it has drafted
    table: float = 0.0  # sums of products: of plain + added with itself,
    both: float = 0.0  # with added,
    seconds: float = 0.0  # and with seconds
    added: float = 0.0  # of added with itself
    more: float = 0.0  # and with seconds
    prior: float = 0.0
    look: float = 0.0  # seconds, where the drafter drafts nothing itself
    drafting: float = 0.0  # in steps that say one token to one request: sums of what it took,
    foretold: float = 0.0  # and of what the table says
    waiting: list[Callable[[], None]] = field(default_factory=list)  # what was seen and is to be learned from

    def saw(self, seen: Callable[[], None]) -> None:
        """Something to be learned from: when the cost is asked for, which of a size that always rests is never."""
        self.waiting.append(seen)
        if len(self.waiting) >= WAITING:
            self.learn()

    def learn(self) -> None:
        """From all that waits: many steps at once take less time than each of them between two of a model's."""
        for seen in self.waiting:
            seen()
        self.waiting.clear()

    def verified(self, plain: float, added: float, one: float, seconds: float) -> None:
        """A step has taken so long; one: what the table says that a token more for each request adds."""
        self.steps += 1
        if self.steps <= WARM_UP:
            return
        level, factor = self.fit()
        if level:
            seconds = min(seconds, LONGEST * level * (plain + factor * added))
        whole = plain + added
        self.table, self.both = KEPT * self.table + whole * whole, KEPT * self.both + whole * added
        self.added, self.seconds = KEPT * self.added + added * added, KEPT * self.seconds + whole * seconds
        self.more, self.prior = KEPT * self.more + added * seconds, PRIOR * min(one, plain / 4) ** 2

    def fit(self) -> tuple[float, float]:
        """Seconds of a step that says one token to one request, 0 if unknown; and how much more drafts add."""
        added = self.added + self.prior
        scale = self.table * added - self.both**2
        if scale <= 0.0:
            return (self.seconds / self.table if self.table else 0.0), 1.0
        more = (self.table * self.more - self.both * self.seconds) / scale
        level = (self.seconds - self.both * more) / self.table
        return (level, _bounded(1.0 + more / level)) if level > 0.0 else (0.0, 1.0)

    def looked(self, foretold: float, seconds: float) -> None:
        """What might be drafted was looked at, and the drafter has drafted what the table says takes so much."""
        level, _ = self.fit()
        if not level:
            return
        if not foretold:
            before = self.look or seconds
            self.look = before + 0.1 * (min(seconds, LONGEST * before) - before)
            return
        took = max(0.0, seconds - self.look) / level
        took = min(took, LONGEST * foretold * self.drafter())
        self.drafting, self.foretold = KEPT * self.drafting + took, KEPT * self.foretold + foretold

    def drafter(self) -> float:
        """How much longer it drafts than the table says."""
        return _bounded((1.0 + self.drafting) / (1.0 + self.foretold))


def _bounded(factor: float) -> float:
    return min(max(factor, 1.0 / FARTHEST), FARTHEST)


class StepTimes:
    """Times the steps of an engine's loop, and corrects a table of their costs.

    From when the drafts of a step were handed out until what the target said to them is known, the step was verified;
    from then until the next are handed out, it was looked what might be drafted.  Only steps count in which nothing
    else was read, no prompts.  agree: makes ranks that must choose alike tell the same corrections.  clock: in seconds.
    """

    def __init__(
        self,
        costs: StepCost,
        agree: Callable[[tuple[float, ...]], tuple[float, ...]] = lambda told: told,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.costs, self.agree, self.clock = costs, agree, clock
        self.sizes: dict[tuple[bool, int], Size] = {}
        self.told: dict[tuple[bool, int], StepCost] = {}
        self.handed: Mapping[int, int] = {}  # drafted tokens of each request in the step under way
        self.began = 0.0
        self.ended: float | None = None  # None: what the last step took is not known

    def begin(self) -> None:
        """What the target has said is known."""
        self.began = self.clock()

    def end(
        self, prices: Prices, greedy: bool, names: Collection[int], drafts: Mapping[int, int], share: float
    ) -> None:
        """Drafts are handed out.

        prices: of steps of this batch by the table.  names: of the requests of the step that is over, as numbers.
        drafts: tokens that the next one is to verify, of those of these whose prompts are read.  share: of the time of
        the drafter's whole draft, what it has drafted meanwhile should have taken.
        """
        now = self.clock()
        if over := self._verified(prices, greedy, names):
            over.saw(partial(over.looked, prices.drafting * share, now - self.began))
        if share:
            size = self._size(len(names), greedy)
            size.untried, size.drafts = 0, size.drafts + 1
        self.handed, self.ended = drafts, now

    def skip(self, prices: Prices, greedy: bool, names: Collection[int], drafts: Mapping[int, int]) -> None:
        """As `end`, of a step that nobody has looked at: of several such steps in a row the first is timed."""
        if self.ended is not None:
            self.begin()
            self._verified(prices, greedy, names)
        self.handed, self.ended = drafts, None

    def _verified(self, prices: Prices, greedy: bool, names: Collection[int]) -> Size | None:
        """The step that is over counts, unless it read something else; those of what size it does."""
        if not names or not all(name in self.handed for name in names):
            return None
        size = self._size(len(names), greedy)
        if self.ended is not None:
            verified = sum(self.handed[name] for name in names)
            size.in_a_row = size.in_a_row + 1 if verified else 0
            size.undrafted += not verified
            times, plain = prices.drafted, prices.plain
            added, one = times[verified] - plain, times[len(names)] - plain
            size.saw(partial(size.verified, plain, added, one, self.began - self.ended))
        return size

    def cost(self, rows: int, greedy: bool) -> StepCost:
        """What the table says of batches of about this size, corrected; asked for at most once in a step."""
        key, size = _key(rows, greedy), self._size(rows, greedy)
        if size.looks % EVERY == 0:
            size.learn()
            level, verifying = size.fit()
            look = size.look / level if rows > 1 and level else 0.0  # many requests that get no drafts are spared it
            told = self.agree((round(verifying, 2), round(size.drafter(), 2), round(look, 3)))
            corrected = self.costs.of(greedy).corrected(*told)
            if self.told.get(key) != corrected:  # one that stays the same is the same object
                self.told[key] = corrected
        size.looks += 1
        return self.told[key]

    def undrafted(self, rows: int, greedy: bool) -> bool:
        """Whether the next step is to go by without drafts, to see what that takes: more and more seldom."""
        size = self._size(rows, greedy)
        return any(self.handed.values()) and size.in_a_row >= min(FIRST << min(size.undrafted, 8), DRAFTED)

    def knows_drafter(self, rows: int, greedy: bool) -> bool:
        """Whether it was seen what the drafter takes in batches of about this size."""
        return self._size(rows, greedy).drafts >= WARM_UP

    def tries(self, rows: int, greedy: bool) -> bool:
        """Whether the drafter is to draft now, whatever that seems to be worth, to see what it takes: asked in a look.

        A table that says too much would never be put right where nothing is drafted for it.
        """
        size = self._size(rows, greedy)
        size.untried += 1
        if not size.trying and size.untried >= min(FIRST_TRIAL << min(size.trials, 8), SELDOM):
            size.trying, size.trials = TRIAL, size.trials + 1
        tries = size.trying > 0
        size.trying -= tries
        return tries

    def _size(self, rows: int, greedy: bool) -> Size:
        key = _key(rows, greedy)
        if key not in self.sizes:
            self.sizes[key] = Size()
        return self.sizes[key]


def _key(rows: int, greedy: bool) -> tuple[bool, int]:
    return greedy, rows.bit_length()
