"""Copying and lengths of drafts for the requests of a batch, on the host of any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from mtpc.copying.request import NOTHING, Proposal, Request
from mtpc.copying.rest import Rest
from mtpc.copying.store import Store
from mtpc.copying.table import CopyTable
from mtpc.copying.trust import Trust
from mtpc.lengths import StepCost, best_common_length, best_lengths, best_rates, least_chance
from mtpc.own import Own
from mtpc.step_times import StepTimes

# By how much drafting must look better than not drafting: of two guesses the larger is too large; the more so of many
# requests whose drafts are drawn.
WORTH, OF_MANY_DRAWN = 1.05, 1.15


class BatchCopying:
    """All requests that are not finished, and what those of the batch at hand would go on with.

    own: tokens that the drafter itself drafts.  longest: tokens of a draft.  store: earlier answers that may be copied;
    None: only a request's own text.  requests: where they are kept, by name; None: until `forget`.  times: correct the
    cost of steps; None: it is believed.
    """

    def __init__(
        self,
        own: Own,
        longest: int,
        cost: StepCost,
        table: CopyTable,
        store: Store | None = None,
        requests: MutableMapping[Any, Request] | None = None,
        times: StepTimes | None = None,
    ) -> None:
        self.table, self.own, self.longest, self.costs = table, own, longest, cost
        self.store, self.rest, self.times = store, Rest(), times
        self.trust = {"drafter": Trust(), "copying": Trust()}  # by who drafts, the former beside the latter
        self.requests: MutableMapping[Any, Request] = {} if requests is None else requests
        self.names: list[int] = []  # their hashes: no request is kept alive
        self.batch: list[Request | None] = []  # None: it gets no draft
        self.proposals: list[Proposal] = []
        self.foretold: list[list[float]] = []  # of each draft, the chances that its tokens are right after those before

    def forget(self, gone: Collection[Hashable]) -> None:
        """Requests that are finished."""
        for name in gone:
            request = self.requests.pop(name)
            if self.store is not None:
                request.copy.append(request.missed)
                self.store.add(request.tenant, request.copy.answer)

    def rests(self, said: Mapping[Any, Sequence[int]], greedy: bool = True) -> bool:
        """Whether a step of many requests gets no draft, nor a look; then only this follows of `begin` to `lengths`.

        said: what the target has just said to each.  greedy: as in `begin`.
        """
        if len(said) == 1:
            self.rest.end()
        if not self.rest.step():
            return False
        for name, tokens in said.items():
            if name in self.requests:  # one that is new is asked for its whole text when it is looked at
                self.requests[name].missed.extend(tokens)
        if self.times is not None:
            self.times.begin()
            drafts = {hash(name): 0 for name, tokens in said.items() if tokens}
            self.times.end(greedy, [hash(name) for name in said], drafts, None)
        return True

    def begin(self, greedy: bool = True) -> None:
        """Of a step, of requests that all have a temperature of 0 or do not."""
        self.names, self.batch, self.proposals, self.greedy = [], [], [], greedy
        self._cost: StepCost | None = None
        if self.times is not None:
            self.times.begin()
        for trust in self.trust.values():
            trust.step()

    def add(
        self,
        name: Hashable,
        text: Callable[[], Sequence[int]],
        said: Sequence[int],
        waiting: bool,
        tenant: str | None = None,
    ) -> None:
        """The next row of the batch, and what the target has just said in it.

        text: what the request has been until then, asked for where it is new.  waiting: it gets no draft in this step.
        tenant: whose request it is; None: nobody's, so that it shares nothing with others.
        """
        if name not in self.requests:
            before = NOTHING if self.store is None else self.store.of(tenant)
            self.requests[name] = Request(self.table, text(), tenant, before, self.greedy)
        request = self.requests[name]
        self.names.append(hash(name))
        if waiting:
            self.batch.append(None)
            self.proposals.append(Proposal.none(self.longest))
            return
        if request.expected is not None:
            trust, foretold = request.expected
            trust.learn(foretold, max(0, len(said) - 1))
            request.expected = None
        request.said(said)
        self.batch.append(request)
        self.proposals.append(request.copy.propose(self.longest))

    def copied(self, count: int) -> Proposal:
        """The first so many tokens of each row, int64 and float32 [B, count]; no chance where there is none to copy."""
        return Proposal.beside_drafter(self.proposals, count)

    @property
    def cost(self) -> StepCost:
        """Of steps of this batch, as far as it is known."""
        if self._cost is None:
            times = self.times
            self._cost = self._table_cost if times is None else times.cost(len(self.batch), self.greedy)
        return self._cost

    @property
    def _table_cost(self) -> StepCost:
        """Of steps of this batch, whatever the clock says."""
        return self.costs.of(self.greedy)

    @property
    def _undrafted(self) -> bool:
        """Whether nothing is to be drafted now, to see what such a step takes."""
        return self.times is not None and self.times.undrafted(len(self.batch), self.greedy)

    def own_that_pay(self, longest: int) -> int:
        """How many tokens the drafter is to draft in this step, beside what is copied; 0: none is worth its time."""
        choices = self.own.choices(longest)
        if self._undrafted or len(choices) == 1:
            return 0
        trusted, spent = (np.array([of(own) for own in choices]) for of in (self._trusted, self._spent))
        foreseen = self._foreseen(self._copied_chances(longest), np.array(choices))
        rates = best_rates(trusted[:, None, None] * foreseen, self.cost, spent)
        best = int(rates.argmax())
        return choices[best] if rates[best] >= self._worth * rates[0] else 0

    def common_length(self, longest: int, always: int = 0) -> int:
        """Where all drafts have one length: that which pays, chosen before the drafter drafts; 0: none does.

        always: tokens that the drafter drafts in any step.
        """
        own = min(self.own.count, longest)
        foreseen = self._foreseen(self._copied_chances(longest), np.array([own]))[0]
        spent = np.array([self._spent(max(min(length, own), always)) for length in range(longest + 1)])
        length = best_common_length(self._trusted(own) * foreseen, self.cost, spent, self._worth)
        if self._undrafted:
            length = 0
        self._expect(foreseen, [length] * len(self.batch), own)
        return length

    def drafted(self, drafts: Sequence[list[int]], always: int = 0) -> None:
        """What was drafted of the rows of the batch with a common length, to see how often it is right.

        always: as of `common_length`.
        """
        for request, tokens in zip(self.batch, drafts, strict=True):
            if request is not None:
                request.drafted(tokens, [])
        own = min(self.own.count, max(map(len, drafts), default=0))
        self._hand_out([len(tokens) for tokens in drafts], max(0.0, self.own.share(own) - self.own.share(always)))

    def _hand_out(self, lengths: Sequence[int], share: float) -> None:
        """The step's drafts are about to be verified; share: see `StepTimes.end`."""
        if self.times is not None:
            rows = zip(self.names, self.batch, lengths, strict=True)
            drafts = {name: length for name, request, length in rows if request is not None}
            self.times.end(self.greedy, self.names, drafts, share)

    def _spent(self, own: int) -> float:
        """What it takes the drafter to draft so many tokens of each row."""
        return self.cost.draft(len(self.batch)) * self.own.share(own) if own else 0.0

    @property
    def _many(self) -> bool:
        """Whether requests are chosen among: of one alone what is foretold counts whole."""
        return len(self.batch) > 1

    @property
    def _worth(self) -> float:
        return OF_MANY_DRAWN if self._many and not self.greedy else WORTH

    def _trust(self, own: int) -> Trust:
        """Of drafts of which so many tokens are the drafter's."""
        return self.trust["drafter" if own else "copying"]

    def _trusted(self, own: int) -> float:
        """What part of chances counts."""
        return self._trust(own).factor if self._many else 1.0

    def _expect(self, reached: np.ndarray, ends: Sequence[int], own: int) -> None:
        """Remember what drafts of these lengths were foretold to bring; reached: float64 [B, longest]."""
        for request, row, end in zip(self.batch, reached, ends, strict=True):
            if request is not None:
                foretold = float(row[:end].sum())
                request.expected = (self._trust(own), foretold) if self._many and foretold else None

    def _copied_chances(self, longest: int) -> np.ndarray:
        """Of what would be copied, each after those before, float64 [B, longest]."""
        return np.array([proposal.chances[:longest] for proposal in self.proposals], dtype=np.float64)

    def _foreseen(self, chances: np.ndarray, owns: np.ndarray) -> np.ndarray:
        """Chances that tokens are reached, before the drafter drafts so many of them, float64 [n, B, longest].

        chances: of copies, see `_copied_chances`.  owns: numbers of the drafter's tokens, int [n].
        """
        typical = np.array([0.0 if request is None else request.typical for request in self.batch])[:, None]
        drafted, copied = np.cumprod(np.maximum(chances, typical), axis=1), np.cumprod(chances, axis=1)
        return np.where(np.arange(chances.shape[1]) < owns[:, None, None], drafted, copied)

    def lengths(
        self, tokens: list[list[int]], sure: np.ndarray, longest: int, alone: Sequence[bool]
    ) -> list[list[int]]:
        """Drafts as long as they pay: the drafter's, which go on being copied where all of one was copied.

        Where the drafter has drawn, a draft ends at the first token that is too unlikely to be reached, whatever comes
        after it: see `least_chance`.

        tokens: the drafter's of each row, as many of all; none where it did not draft.  sure: float32 [B, own], its
        probability of the most probable token at each place.  longest: tokens of a draft now.  alone: whose draft must
        not depend on the others of the batch.
        """
        own = sure.shape[1]
        reached, whole, chances, foretold = np.zeros((len(tokens), longest)), [], sure.tolist(), []
        for row, (request, draft, proposal) in enumerate(zip(self.batch, tokens, self.proposals, strict=True)):
            copied = proposal.tokens[:longest].tolist()
            goes_on = draft == copied[:own]
            whole.append(copied if goes_on else draft)
            if request is not None:
                chances[row] = request.sure.corrected(self.table.of_drafter(chances[row]))
            rest = proposal.chances[own:longest].tolist() if goes_on else []
            foretold.append([] if request is None else [*chances[row], *rest])
            reached[row, : len(foretold[row])] = list(accumulate(foretold[row], mul))
        drawn = own > 0 and not self.greedy
        foreseen = self._foreseen(self._copied_chances(longest), np.array([own]))[0] if drawn else reached

        def ends_of(some: slice, cost: StepCost, spent: float, trust: float, worth: float) -> np.ndarray:
            if not drawn:
                return best_lengths(trust * reached[some], cost, spent, worth).of
            least = least_chance(trust * foreseen[some], cost, spent, worth)
            judged = (reached[some] > 0) & (trust * reached[some] >= least)
            return np.asarray(np.logical_and.accumulate(judged, axis=1).sum(1))

        # What the drafter has drafted is paid for.
        ends = ends_of(slice(None), self.cost, self._spent(own), self._trusted(own), 1.0 if own else self._worth)
        if self._undrafted:
            ends = np.zeros_like(ends)
        for row in np.flatnonzero(alone):  # what others have learned, or the clock says, is none of its business
            spent = self._table_cost.draft(1) * self.own.share(own)
            ends[row] = ends_of(slice(row, row + 1), self._table_cost, spent, 1.0, 1.0 if own else WORTH)[0]
        for row, (request, end) in enumerate(zip(self.batch, ends.tolist(), strict=True)):
            if request is not None:
                request.drafted(tokens[row][:end], chances[row][:end])
        self._expect(reached, ends.tolist(), own)
        self.rest.looked(any(ends.tolist()))
        self.foretold = [row[:end] for row, end in zip(foretold, ends.tolist(), strict=True)]
        self._hand_out(ends.tolist(), self.own.share(own))
        return [text[:end] for text, end in zip(whole, ends.tolist(), strict=True)]
