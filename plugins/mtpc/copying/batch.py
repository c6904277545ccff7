"""Copying and lengths of drafts for the requests of a batch, on the host of any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from mtpc.copying.request import NOTHING, CopyRequest, Proposal
from mtpc.copying.rest import Rest
from mtpc.copying.shift import Shift
from mtpc.copying.store import Store
from mtpc.copying.table import CopyTable
from mtpc.copying.trust import Trust
from mtpc.lengths import StepCost, best_common_length, best_lengths, least_chance
from mtpc.own import Own

FOLLOWS, FORGETS = 0.1, 0.02  # of a request's own drafts, see `Request`
# By how much drafting must look better than not drafting, of one request and of many: of two guesses the larger is too
# large, and what a step of many takes is known less well.
WORTH, OF_MANY = 1.05, 1.15


class Request:
    """A request: its text, and what becomes of the drafter's drafts in it.

    tenant, before: whose it is, and what of the same tenant may be copied, see `mtpc.copying.store`.  sure: corrects
    the drafter's own probability of the tokens that it drafts.  typical: how often one of them is accepted, to judge by
    before it drafts; while it does not draft, that goes back to ``at_first``.  expected: who learns what becomes of the
    draft under way, and how many accepted tokens it was foretold to bring; None: nobody.  missed: what the target has
    said while nobody looked, see `mtpc.copying.rest`.
    """

    def __init__(
        self,
        table: CopyTable,
        prompt: Sequence[int],
        tenant: str | None = None,
        before: np.ndarray = NOTHING,
        greedy: bool = True,
    ) -> None:
        self.copy, self.tenant = CopyRequest(table, prompt, before), tenant
        self.at_first = table.typical[not greedy]
        self.sure, self.typical = Shift(), self.at_first
        self.expected: tuple[Trust, float] | None = None
        self.missed: list[int] = []
        self._drafted: tuple[list[int], list[float]] = [], []

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


class BatchCopying:
    """All requests that are not finished, and what those of the batch at hand would go on with.

    own: tokens that the drafter itself drafts.  longest: tokens of a draft.  store: earlier answers that may be copied;
    None: only a request's own text.  requests: where they are kept, by name; None: until `forget`.
    """

    def __init__(
        self,
        own: Own,
        longest: int,
        cost: StepCost,
        table: CopyTable,
        store: Store | None = None,
        requests: MutableMapping[Any, Request] | None = None,
    ) -> None:
        self.table, self.own, self.longest, self.costs, self.cost = table, own, longest, cost, cost
        self.store, self.rest = store, Rest()
        self.trust = {"drafter": Trust(), "copying": Trust()}  # by who drafts, the former beside the latter
        self.requests: MutableMapping[Any, Request] = {} if requests is None else requests
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

    def rests(self, said: Mapping[Any, Sequence[int]]) -> bool:
        """Whether a step of many requests gets no draft, nor a look; then only this follows of `begin` to `lengths`.

        said: what the target has just said to each.  One that is new is looked at.
        """
        if len(said) == 1 or not self.requests.keys() >= said.keys():
            self.rest.end()
        if not self.rest.step():
            return False
        for name, tokens in said.items():
            self.requests[name].missed.extend(tokens)
        return True

    def begin(self, greedy: bool = True) -> None:
        """Of a step, of requests that all have a temperature of 0 or do not."""
        self.batch, self.proposals, self.cost, self.greedy = [], [], self.costs.of(greedy), greedy
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

    def own_that_pay(self, longest: int) -> int:
        """How many tokens the drafter is to draft in this step, beside what is copied; 0: none is worth its time."""
        copied = self._copied_chances(longest)

        def rate(own: int) -> float:
            return best_lengths(self._trusted(own) * self._foreseen(copied, own), self.cost, self._spent(own)).rate

        rates = {own: rate(own) for own in self.own.choices(longest)}
        best = max(rates, key=rates.__getitem__)
        return best if rates[best] >= self._worth * rates[0] else 0

    def common_length(self, longest: int, always: int = 0) -> int:
        """Where all drafts have one length: that which pays, chosen before the drafter drafts; 0: none does.

        always: tokens that the drafter drafts in any step.
        """
        own = min(self.own.count, longest)
        foreseen = self._foreseen(self._copied_chances(longest), own)
        spent = np.array([self._spent(max(min(length, own), always)) for length in range(longest + 1)])
        length = best_common_length(self._trusted(own) * foreseen, self.cost, spent, self._worth)
        self._expect(foreseen, [length] * len(self.batch), own)
        return length

    def drafted(self, drafts: Sequence[list[int]]) -> None:
        """What was drafted of the rows of the batch with a common length, to see how often it is right."""
        for request, tokens in zip(self.batch, drafts, strict=True):
            if request is not None:
                request.drafted(tokens, [])

    def _spent(self, own: int) -> float:
        """What it takes the drafter to draft so many tokens of each row."""
        return self.cost.draft(len(self.batch)) * self.own.share(own) if own else 0.0

    @property
    def _many(self) -> bool:
        """Whether requests are chosen among: of one alone what is foretold counts whole."""
        return len(self.batch) > 1

    @property
    def _worth(self) -> float:
        return OF_MANY if self._many else WORTH

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

    def _foreseen(self, chances: np.ndarray, own: int) -> np.ndarray:
        """Chances that tokens are reached, before the drafter drafts ``own`` of them, float64 [B, longest].

        chances: of copies, see `_copied_chances`.
        """
        typical = np.array([0.0 if request is None else request.typical for request in self.batch])[:, None]
        drafted = np.cumprod(np.maximum(chances[:, :own], typical), axis=1)
        return np.concatenate([drafted, np.cumprod(chances, axis=1)[:, own:]], axis=1)

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
        foreseen = self._foreseen(self._copied_chances(longest), own) if drawn else reached

        def ends_of(some: slice, spent: float, trust: float, worth: float) -> np.ndarray:
            if not drawn:
                return best_lengths(trust * reached[some], self.cost, spent, worth).of
            least = least_chance(trust * foreseen[some], self.cost, spent, worth)
            judged = (reached[some] > 0) & (trust * reached[some] >= least)
            return np.asarray(np.logical_and.accumulate(judged, axis=1).sum(1))

        # What the drafter has drafted is paid for.
        ends = ends_of(slice(None), self._spent(own), self._trusted(own), 1.0 if own else self._worth)
        for row in np.flatnonzero(alone):  # what others have learned is none of its business
            spent = self.cost.draft(1) * self.own.share(own)
            ends[row] = ends_of(slice(row, row + 1), spent, 1.0, 1.0 if own else WORTH)[0]
        for row, (request, end) in enumerate(zip(self.batch, ends.tolist(), strict=True)):
            if request is not None:
                request.drafted(tokens[row][:end], chances[row][:end])
        self._expect(reached, ends.tolist(), own)
        self.rest.looked(any(ends.tolist()))
        self.foretold = [row[:end] for row, end in zip(foretold, ends.tolist(), strict=True)]
        return [text[:end] for text, end in zip(whole, ends.tolist(), strict=True)]
