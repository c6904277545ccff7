"""Copying and lengths of drafts for the requests of a batch, on the host of any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, MutableMapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from mtpc.draft_length.budget import Own
from mtpc.draft_length.choice import Best, Chances, Prices, best_lengths, least_chance, lengths_of
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.measured import StepTimes
from mtpc.draft_length.passes import Passes, Row
from mtpc.draft_length.request import Request
from mtpc.draft_length.rest import Rest
from mtpc.draft_length.timed import Timed
from mtpc.draft_length.trust import Trust
from mtpc.prompt_lookup.request import Proposal, beside_drafter
from mtpc.prompt_lookup.store import Store
from mtpc.prompt_lookup.table import CopyTable

# By how much drafting must look better than not drafting: at all for one request, for many by more. Of the best of
# their chances a part is luck, the larger the less is known of what drafting takes.
WORTH, OF_MANY, OF_MANY_GUESSED = 1.0, 1.05, 1.15
HOPEFUL = 0.9  # what drafting must look like for a trial: from there on it may be worth more than it seems to


class BatchCopying:
    """All requests that are not finished, and what those of the batch at hand would go on with.

    own: tokens that the drafter itself drafts.  longest: tokens of a draft.  store: earlier answers that may be copied;
    None: only a request's own text.  requests: where they are kept, by name; None: until `forget`.  times: correct the
    cost of steps; None: it is believed.  numbered: of a request's name, a number that no other one has, on all ranks at
    the same time.
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
        numbered: Callable[[Any], int] = hash,
    ) -> None:
        self.table, self.own, self.longest, self.timed = table, own, longest, Timed(cost, longest, times)
        self.store, self.numbered = store, numbered
        self.rest, self._company = Rest(), set[int]()  # and the numbers of those that it is of
        # By what is believed: what is foreseen before the drafter drafts, what it says then, or copies alone.
        self.trust = {"foreseen": Trust(), "drafter": Trust(), "copying": Trust()}
        self.requests: MutableMapping[Any, Request] = {} if requests is None else requests
        self.names: list[int] = []  # their numbers: no request is kept alive
        self.batch: list[Request | None] = []  # None: it gets no draft
        self.proposals: list[Proposal] = []
        self.reached: Chances = []  # of each draft, the chances that its tokens are accepted with those before

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
        company = set(map(self.numbered, said))
        if len(company) == 1 or company != self._company:  # what nobody else had to copy tells nothing of a new one
            self.rest = Rest()
        self._company = company
        if not self.rest.step():
            return False
        for name, tokens in said.items():
            self.missed(name, tokens)
        drafts = {self.numbered(name): 0 for name, tokens in said.items() if tokens}
        self.timed.skip(greedy, list(map(self.numbered, said)), drafts)
        return True

    def rests_on(self) -> bool:
        """As `rests`, of a step of the same requests as the rested one before: what they say is told to `missed`."""
        return self.rest.step()

    def missed(self, name: Hashable, said: Sequence[int]) -> None:
        """What the target has said to a request in a rest; one that is new is asked for its whole text after it."""
        if name in self.requests:
            self.requests[name].missed.extend(said)

    def begin(self, greedy: bool = True) -> None:
        """Of a step, of requests that all have a temperature of 0 or do not."""
        self.names, self.batch, self.proposals, self.greedy = [], [], [], greedy
        self._reached: list[tuple[list[float], list[float]]] | None = None
        self._weighed: dict[tuple[int, int], Best] = {}
        self._tries = False
        self._planned = self._longest = 0
        self._passes: Passes | None = None
        self.timed.begin(greedy)

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
            before = () if self.store is None else self.store.of(tenant)
            self.requests[name] = Request(self.table, text(), tenant, before, self.greedy)
        request = self.requests[name]
        self.names.append(self.numbered(name))
        if waiting:
            self.batch.append(None)
            self.proposals.append(Proposal.none(self.longest))
            return
        for trust, foretold in request.expected:
            trust.learn(foretold, max(0, len(said) - 1))
        request.expected = []
        request.said(said)
        self.batch.append(request)
        self.proposals.append(request.copy.propose(self.longest))

    def copied(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """See `mtpc.prompt_lookup.request.beside_drafter`; no chance where there is nothing to copy."""
        return beside_drafter(self.proposals, count)

    @property
    def prices(self) -> Prices:
        """Of steps of this batch, as far as they are known."""
        return self.timed.prices(len(self.batch))

    @property
    def _undrafted(self) -> bool:
        return self.timed.undrafted(len(self.batch))

    def _tried(self) -> bool:
        """Whether the drafter drafts now to see what that takes, and all that it drafts is verified."""
        self._tries = self.timed.tries(len(self.batch))
        return self._tries

    def own_that_pay(self, longest: int) -> int:
        """How many tokens the drafter is to draft in this step, beside what is copied; 0: none is worth its time."""
        choices = self.own.choices(longest)
        if self._undrafted or len(choices) == 1 or self._all_copied:
            return 0
        rates = [self._best(own, longest)[0] for own in choices]
        best = max(rates[1:])
        worth = OF_MANY if self._many and self.timed.knows_drafter(len(self.batch)) else self._worth
        self._longest = longest
        if best > worth * rates[0]:
            self._planned = choices[rates.index(best, 1)]
        elif best >= HOPEFUL * rates[0] and self._tried():
            self._planned = self.own.tried(longest)
        return self._planned

    @property
    def _all_copied(self) -> bool:
        """Whether every token that the drafter might draft is as likely where it is copied."""
        most = self.own.most
        return all(
            request is None or min(copied.chances[:most]) >= request.typical
            for request, copied in zip(self.batch, self.proposals, strict=True)
        )

    def goes_on(self, tokens: Sequence[int], sure: Sequence[float]) -> bool:
        """Whether the drafter, which drafts by pass, makes another one after one that has drafted a token of each row.

        It was to draft at all, see `own_that_pay`.  sure: its probability of the most probable token of each row.
        """
        if self._passes is None:
            rows = zip(self.batch, self.proposals, strict=True)
            drafts = [None if one is None else Row(copied, self._longest, one.typical) for one, copied in rows]
            self._passes = Passes(drafts, self.prices, self._spent, self._trusted("drafter"))
        passes, place = self._passes, self._passes.done
        chances = [
            0.0 if request is None else self.table.at_place(place, likely, request.sure.value, self.greedy)
            for request, likely in zip(self.batch, sure, strict=True)
        ]
        passes.drafted(tokens, chances)
        if self._tries:
            return passes.done < self._planned
        return passes.done < min(self.own.most, self._longest) and passes.go_on()

    def _hand_out(self, lengths: Sequence[int], share: float) -> None:
        """The step's drafts are about to be verified; share: see `StepTimes.end`."""
        rows = zip(self.names, self.batch, lengths, strict=True)
        self.timed.end(self.names, {name: length for name, request, length in rows if request is not None}, share)

    def _spent(self, own: int) -> float:
        """What it takes the drafter to draft so many tokens of each row."""
        return self.prices.drafting * self.own.share(own) if own else 0.0

    @property
    def _many(self) -> bool:
        """Whether requests are chosen among: of one alone what is foretold counts whole."""
        return len(self.batch) > 1

    @property
    def _worth(self) -> float:
        return OF_MANY_GUESSED if self._many else WORTH

    def _trusted(self, believed: str) -> float:
        """What part of chances counts."""
        return self.trust[believed].factor if self._many else 1.0

    def _best(self, own: int, longest: int) -> Best:
        """What drafts bring, of which the drafter is to draft so many tokens itself, by what is foreseen."""
        if (own, longest) not in self._weighed:
            foreseen, trust = self._foreseen(own, longest), self._trusted(believed_of(own))
            self._weighed[own, longest] = self.prices.best(foreseen, self._spent(own), trust)
        return self._weighed[own, longest]

    def _expect(self, foretold: Mapping[str, Chances], ends: Sequence[int]) -> None:
        """Of a step of many: remember what drafts of these lengths were foretold to bring, by what is believed."""
        for trust in self.trust.values():
            trust.step()
        for row, (request, end) in enumerate(zip(self.batch, ends, strict=True)):
            if request is not None and end:
                request.expected = [(self.trust[name], sum(each[row][:end])) for name, each in foretold.items()]

    def _foreseen(self, own: int, longest: int) -> list[list[float]]:
        """Chances that tokens are reached, before the drafter drafts so many of them."""
        if self._reached is None:
            rows = zip(self.batch, self.proposals, strict=True)
            self._reached = [
                ([], []) if request is None else request.foreseen(proposal.chances, self.own.most)
                for request, proposal in rows
            ]
        return [[*drafted[:own], *copied[own:longest]] for drafted, copied in self._reached]

    def lengths(
        self, tokens: list[list[int]], sure: list[list[float]], longest: int, alone: Sequence[bool]
    ) -> list[list[int]]:
        """Drafts as long as they pay: the drafter's, which go on being copied where all of one was copied.

        Where the drafter has drawn, a draft ends at the first token that is too unlikely to be reached, whatever comes
        after it: see `least_chance`.

        tokens: the drafter's of each row, as many of all; none where it did not draft.  sure: its probability of the
        most probable token at each of these places, of no row where it did not draft.  longest: tokens of a draft now.
        alone: whose draft must not depend on the others of the batch.
        """
        own = len(tokens[0])
        if own:
            chances = self._corrected(sure)
            drafts = list(self._going_on(tokens, chances, own, longest))
            reached = [list(accumulate(draft.chances, mul)) for draft in drafts]
        else:
            drafts, reached = self.proposals, self._foreseen(0, longest)
        if self._undrafted:
            ends = [0] * len(drafts)
        elif self._tries:
            ends = [min(own, len(row)) for row in reached]
        elif not own:
            ends = lengths_of(reached, self._best(0, longest), self.prices.undrafted_rate(0.0), self._worth).of
        elif self.greedy:  # the drafter's time is spent already, so any gain is worth it
            ends = best_lengths(reached, self.prices, self._spent(own), trust=self._trusted("drafter")).of
        else:
            # How many passes were made may tell what they have drawn: what is drawn is cut by how many were planned.
            least = least_chance(self._best(self._planned or own, longest), longest, self.prices)
            ends = [_judged(row, least, self._trusted("drafter")) for row in reached]
        for row in [row for row, one in enumerate(alone) if one]:
            ends[row] = self._end_alone(row, reached[row], own, longest)
        if own:
            for request, draft, likely, end in zip(self.batch, tokens, chances, ends, strict=True):
                if request is not None:
                    request.drafted(draft[:end], likely[:end])
        if self._many:
            foretold = {"drafter": reached, "foreseen": self._foreseen(own, longest)} if own else {"copying": reached}
            self._expect(foretold, ends)
        if not self._tries:  # whose next step is to follow this one, and which drafts whatever it is worth
            self.rest.looked(any(ends))
        self.reached = reached
        self._hand_out(ends, self.own.share(own))
        return [draft.tokens[:end] for draft, end in zip(drafts, ends, strict=True)]

    def _end_alone(self, row: int, reached: Sequence[float], own: int, longest: int) -> int:
        """Where the draft of a row ends, whatever others have learned or the clock says."""
        prices = self.timed.by_table(1)
        spent, worth = prices.drafting * self.own.share(own), 1.0 if own else WORTH
        if self.greedy or not own:
            return best_lengths([reached], prices, spent, worth).of[0]
        foreseen = self._foreseen(own, longest)[row]
        return _judged(reached, least_chance(prices.best([foreseen], spent), longest, prices))

    def _corrected(self, sure: list[list[float]]) -> list[list[float]]:
        """The chances of the drafter's own tokens; none of a row that gets no draft."""
        return [
            [] if request is None else self.table.of_drafter(likely, request.sure.value, self.greedy)
            for request, likely in zip(self.batch, sure, strict=True)
        ]

    def _going_on(
        self, tokens: list[list[int]], chances: list[list[float]], own: int, longest: int
    ) -> Iterator[Proposal]:
        """The drafter's tokens, and what is copied after them where all of them were."""
        for request, draft, likely, copied in zip(self.batch, tokens, chances, self.proposals, strict=True):
            if request is None:
                yield Proposal([], [])
            elif draft == copied.tokens[:own]:
                yield Proposal(copied.tokens[:longest], [*likely, *copied.chances[own:longest]])
            else:
                yield Proposal(draft, likely)


def believed_of(own: int) -> str:
    """Whose word counts for what may be brought before anything is drafted, by tokens of the drafter's own."""
    return "foreseen" if own else "copying"


def _judged(reached: Sequence[float], least: Sequence[float], trust: float = 1.0) -> int:
    """How many tokens of a draft are likely enough to be reached, up to the first that is not."""
    for place, (chance, enough) in enumerate(zip(reached, least, strict=False)):
        if not chance or trust * chance < enough:
            return place
    return len(reached)
