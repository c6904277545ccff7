"""How long the drafts of each decoding step are, for all requests of a batch, on the host of any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, MutableMapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

from mtpc.draft_length.acceptance_correction import Trust
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.choice import Best, Chances, Prices, best_common_length, best_lengths, least_chance, lengths_of
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.request import DraftedRequest
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.request import CopyRequest, Proposal, beside_drafter
from mtpc.prompt_lookup.store import Store
from mtpc.prompt_lookup.table import CopyTable

WORTH = 1.05  # what drafting must bring in a batch, times a step without drafts: the best of many estimates is too good
KNOWN = 64  # batch sizes whose prices are kept, for greedy batches and others

Way = Sequence[int]  # how many tokens the drafter drafts itself where each draft is to have so many, from none on


class DraftLengths:
    """Chooses the lengths of a batch's drafts, so that a step brings the most tokens for its time.

    One decoding step: `begin`; `add` for each request; then, where drafts may have any length, `plan` before the
    drafter drafts and `cut` after it, or, where all have one length, `common_length` before and `drafted` after.
    `copied` may be called from `add` on.  `forget` ends requests.

    Lossless: whether a drawn token is verified is decided by what was known before it was drawn.

    Args:
        budget: Tokens that the drafter drafts itself.
        longest: Tokens of a draft at most.
        cost: What steps cost.
        table: Chances of prompt lookup, and how well the drafter's confidence predicts acceptance.
        store: Earlier answers that may be copied; None: a request's own text alone.
        requests: Where requests are kept, by name; None: until `forget`.
        copies: Whether prompt lookup drafts as well.
    """

    def __init__(
        self,
        budget: DraftBudget,
        longest: int,
        cost: StepCost,
        table: CopyTable,
        store: Store | None = None,
        requests: MutableMapping[Any, DraftedRequest] | None = None,
        copies: bool = True,
    ) -> None:
        self.budget, self.longest, self.table, self.store, self.copies = budget, longest, table, store, copies
        self.cost, self.trust = cost, Trust()
        self.requests: MutableMapping[Any, DraftedRequest] = {} if requests is None else requests
        self._prices: dict[tuple[bool, int], Prices] = {}
        self.begin()

    def forget(self, gone: Collection[Hashable]) -> None:
        """Drop requests that are finished."""
        for name in gone:
            request = self.requests.pop(name)
            if self.store is not None and request.copy is not None:
                self.store.add(request.tenant, request.copy.output)

    def begin(self, greedy: bool = True) -> None:
        """Begin a step of requests that all have a temperature of 0, or do not."""
        self.greedy = greedy
        self.batch: list[DraftedRequest | None] = []  # None: it gets no draft
        self.proposals: list[Proposal] = []  # what each would copy
        self.reached: Chances = []  # of each draft, the chances that its tokens are accepted with those before
        self._reached: list[tuple[list[float], list[float]]] | None = None
        self._best: dict[tuple[int, int], Best] = {}
        self._planned = 0

    def add(
        self,
        name: Hashable,
        text: Callable[[], Sequence[int]],
        said: Sequence[int],
        waiting: bool,
        tenant: str | None = None,
    ) -> None:
        """Add the next request of the batch.

        Args:
            name: Of the request.
            text: Its tokens until now, without ``said``; called where the request is new.
            said: What the target has just emitted.
            waiting: Whether it gets no draft in this step.
            tenant: Whose request it is; None: nobody's, so that it shares nothing with others.
        """
        if name not in self.requests:
            before = () if self.store is None else self.store.of(tenant)
            copy = CopyRequest(self.table, text(), before) if self.copies else None
            self.requests[name] = DraftedRequest(self.table, copy, tenant, self.greedy)
        request = self.requests[name]
        if waiting:
            self.batch.append(None)
            self.proposals.append(Proposal.empty(self.longest))
            return
        if request.predicted is not None:
            self.trust.learn(request.predicted, max(0, len(said) - 1))
            request.predicted = None
        request.said(said)
        self.batch.append(request)
        nothing = Proposal.empty(self.longest)
        self.proposals.append(nothing if request.copy is None else request.copy.propose(self.longest))

    def copied(self, count: int) -> Copied:
        """Return the first tokens of what may be copied beside the drafter, in the host's memory."""
        return beside_drafter(self.proposals, count)

    def plan(self, longest: int) -> int:
        """Return how many tokens the drafter is to draft for each request of this step; 0: none is worth its time."""
        choices = self.budget.choices(longest)
        if len(choices) == 1 or self._all_copied:
            return 0
        rates = [self._best_of(own, longest)[0] for own in choices]
        best = max(rates[1:])
        if best > self._worth * rates[0]:
            self._planned = choices[rates.index(best, 1)]
        return self._planned

    def cut(
        self, tokens: list[list[int]], peaks: list[list[float]], longest: int, alone: Sequence[bool]
    ) -> list[list[int]]:
        """Return each request's draft, as long as is worth it; one that was all copied goes on being copied.

        Args:
            tokens: The drafter's of each request, as many of all; none where it did not draft.
            peaks: Its probability of the most probable token at each of these places; empty: it states none.
            longest: Tokens of a draft in this step.
            alone: Whose draft must not depend on the others of the batch.
        """
        own = len(tokens[0])
        if own:
            chances = self._chances(peaks, own)
            drafts = list(self._going_on(tokens, chances, own, longest))
            reached = [list(accumulate(draft.chances, mul)) for draft in drafts]
            ends = self._ends(reached, own, longest)
        else:
            drafts, reached = self.proposals, self._foreseen(0, longest)
            ends = lengths_of(reached, self._best_of(0, longest), self.prices.undrafted_rate(0.0), self._worth).of
        for row in [row for row, one in enumerate(alone) if one]:
            ends[row] = self._end_alone(row, reached[row], own, longest)
        for row, (request, end) in enumerate(zip(self.batch, ends, strict=True)):
            if request is not None and own:
                request.drafted(tokens[row][:end], chances[row][:end] if peaks else [])
        self._predict(reached, ends)
        self.reached = reached
        return [draft.tokens[:end] for draft, end in zip(drafts, ends, strict=True)]

    def common_length(self, longest: int, ways: Sequence[Way], shortest: int = 1) -> tuple[Way, int]:
        """Return how drafts of one length are made, and that length, chosen before the drafter drafts; 0: no drafts.

        Args:
            longest: Tokens of a draft in this step.
            ways: In which drafts may be made; the first counts where there are none.
            shortest: Tokens of a draft at least: all those of a tree.
        """
        best_way, best_length, best_rate = ways[0], 0, 0.0
        for way in ways:
            own = way[longest]
            spent = [self._spent(tokens) for tokens in way[: longest + 1]]
            found = best_common_length(
                self._foreseen(own, longest), longest, self.prices, spent, self._worth, self._trusted, shortest
            )
            if found.rate > best_rate:
                best_way, (best_length, best_rate) = way, found
        self._predict(self._foreseen(best_way[longest], longest), [best_length] * len(self.batch))
        return best_way, best_length

    def drafted(self, drafts: Sequence[list[int]], own: int) -> None:
        """Remember the drafts of one length, of which the drafter has drafted so many tokens each."""
        for request, tokens in zip(self.batch, drafts, strict=True):
            if request is not None:
                request.drafted(tokens[:own], [])

    def drafted_trees(self, depth: int) -> None:
        """Remember that the drafts of the batch are trees of such a depth."""
        for request in self.batch:
            if request is not None:
                request.drafted_tree(depth)

    @property
    def prices(self) -> Prices:
        """What steps of this batch cost."""
        return self._prices_of(len(self.batch))

    def _prices_of(self, requests: int) -> Prices:
        key = self.greedy, requests
        if key not in self._prices:
            if len(self._prices) >= KNOWN:
                self._prices.clear()
            self._prices[key] = Prices(self.cost.of(self.greedy), requests, requests * self.longest)
        return self._prices[key]

    @property
    def _all_copied(self) -> bool:
        """Whether every token that the drafter might draft is as likely where it is copied."""
        return self.copies and all(
            request is None or min(copied.chances[: self.budget.tokens]) >= request.rate
            for request, copied in zip(self.batch, self.proposals, strict=True)
        )

    @property
    def _worth(self) -> float:
        return WORTH if len(self.batch) > 1 else 1.0

    @property
    def _trusted(self) -> float:
        """What part of predicted acceptance counts: of one request all, as nothing is chosen among requests."""
        return self.trust.factor if len(self.batch) > 1 else 1.0

    def _spent(self, own: int) -> float:
        """What it costs the drafter to draft so many tokens for each request."""
        return self.prices.drafting * self.budget.share(own)

    def _foreseen(self, own: int, longest: int) -> list[list[float]]:
        """Chances that tokens are reached, before the drafter drafts so many of them."""
        if self._reached is None:
            rows = zip(self.batch, self.proposals, strict=True)
            self._reached = [
                ([], []) if request is None else request.foreseen(proposal.chances, self.budget.tokens)
                for request, proposal in rows
            ]
        return [[*drafted[:own], *copied[own:longest]] for drafted, copied in self._reached]

    def _best_of(self, own: int, longest: int) -> Best:
        """The best drafts of which the drafter drafts so many tokens itself, by what is foreseen."""
        if (own, longest) not in self._best:
            self._best[own, longest] = self.prices.best(self._foreseen(own, longest), self._spent(own), self._trusted)
        return self._best[own, longest]

    def _ends(self, reached: Chances, own: int, longest: int) -> list[int]:
        """Where drafts end that the drafter has drafted, whose time is spent already: any gain is worth it."""
        if self.greedy:
            return best_lengths(reached, self.prices, self._spent(own), trust=self._trusted).of
        least = least_chance(self._best_of(self._planned or own, longest), longest, self.prices)
        return [_judged(row, least, self._trusted) for row in reached]

    def _end_alone(self, row: int, reached: Sequence[float], own: int, longest: int) -> int:
        """Where the draft of a request ends, whatever the others of its batch are."""
        prices = self._prices_of(1)
        spent = prices.drafting * self.budget.share(own)
        if self.greedy or not own:
            return best_lengths([reached], prices, spent).of[0]
        foreseen = self._foreseen(own, longest)[row]
        return _judged(reached, least_chance(prices.best([foreseen], spent), longest, prices))

    def _predict(self, reached: Chances, ends: Sequence[int]) -> None:
        """Remember what the drafts of a batch are expected to bring."""
        self.trust.step()
        if len(self.batch) > 1:
            for request, row, end in zip(self.batch, reached, ends, strict=True):
                if request is not None and end:
                    request.predicted = sum(row[:end])

    def _chances(self, peaks: list[list[float]], own: int) -> list[list[float]]:
        """Chances of the drafter's tokens, by its confidence or, where it states none, by what was accepted before."""
        if not peaks:
            return [[] if request is None else [request.rate] * own for request in self.batch]
        return [
            [] if request is None else self.table.of_drafter(row, request.confidence.offset, self.greedy)
            for request, row in zip(self.batch, peaks, strict=True)
        ]

    def _going_on(
        self, tokens: list[list[int]], chances: list[list[float]], own: int, longest: int
    ) -> Iterator[Proposal]:
        """The drafter's tokens, and what is copied after them where all of them were."""
        for request, draft, likely, copied in zip(self.batch, tokens, chances, self.proposals, strict=True):
            if request is None:
                yield Proposal([], [])
            elif draft == copied.tokens[:own] and copied.chances[0]:
                yield Proposal(copied.tokens[:longest], [*likely, *copied.chances[own:longest]])
            else:
                yield Proposal(draft, likely)


def _judged(reached: Sequence[float], least: Sequence[float], trust: float = 1.0) -> int:
    """How many tokens of a draft are likely enough to be reached, up to the first that is not."""
    for place, (chance, enough) in enumerate(zip(reached, least, strict=False)):
        if not chance or trust * chance < enough:
            return place
    return len(reached)
