"""Draft lengths of each decoding step for all requests of a batch, on the host of any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, MutableMapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

from mtpc.draft import MAX_DRAFTS
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.choice import (
    BatchCosts,
    BestDrafts,
    Probabilities,
    best_common_length,
    best_lengths,
    least_chance,
    lengths_of,
)
from mtpc.draft_length.cost import StepCost
from mtpc.draft_length.request import DraftedRequest
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.request import CopyRequest, Proposal, batch_proposals
from mtpc.prompt_lookup.store import SEPARATOR, OutputStore
from mtpc.prompt_lookup.table import CopyTable

MAX_CACHED = 64  # batch sizes whose costs are kept, greedy and sampled batches separately

DrafterTokens = Sequence[int]  # tokens that the drafter drafts itself, by the length of the draft, from 0 on


class DraftLengths:
    """Chooses draft lengths so that a decoding step brings the most tokens for its time.

    One decoding step: call `begin`, then `add` for each request.
    Where drafts may have any length, call `plan` before the drafter drafts and `cut` after it.
    Where all drafts have one length, call `common_length` before it, then `drafted` or `drafted_trees`.
    `continued` then adds copied tokens to those drafts that prompt lookup proposes as well.
    Where the drafter drafts for some requests only, call `uncopied` before it.
    `copied` and `rate_of_copies` may be called from `add` on.  Call `forget` when requests finish.

    Lossless: whether a sampled token is verified depends only on what was known before it was sampled.

    Attributes:
        cost: Costs of decoding steps; may be replaced before the first step.
        requests: State of requests by name.

    Args:
        budget: Tokens that the drafter drafts itself.
        longest: Tokens of a draft at most.
        cost: Costs of decoding steps.
        table: Probabilities of prompt lookup.
        vocab_size: V of the target.
        store: Earlier outputs that may be copied; None: a request's own text only.
        requests: Mapping that keeps the state of requests by name; None: a dictionary, until `forget`.
        copies: Whether prompt lookup drafts as well.
    """

    def __init__(
        self,
        budget: DraftBudget,
        longest: int,
        cost: StepCost,
        table: CopyTable,
        vocab_size: int,
        store: OutputStore | None = None,
        requests: MutableMapping[Any, DraftedRequest] | None = None,
        copies: bool = True,
    ) -> None:
        self.budget, self.longest, self.table, self.store, self.copies = budget, longest, table, store, copies
        self.cost, self.vocab_size = cost, vocab_size
        self.requests: MutableMapping[Any, DraftedRequest] = {} if requests is None else requests
        self._batch_costs: dict[tuple[bool, int], BatchCosts] = {}
        self.begin()

    def forget(self, gone: Collection[Hashable]) -> None:
        """Drop finished requests and keep their outputs for prompt lookup.

        Args:
            gone: Names of the requests.
        """
        for name in gone:
            request = self.requests.pop(name)
            if self.store is not None and request.copy is not None:
                self.store.add(request.tenant, request.copy.output)

    def begin(self, greedy: bool = True) -> None:
        """Begin a decoding step.

        Args:
            greedy: Whether all requests have a temperature of 0.
        """
        self.greedy = greedy
        self.batch: list[DraftedRequest | None] = []  # None: the request gets no draft
        self.proposals: list[Proposal] = []  # of prompt lookup, one for each request
        self._reached: list[tuple[list[float], list[float]]] | None = None
        self._best: dict[tuple[int, int], BestDrafts] = {}
        self._planned = 0

    def add(
        self,
        name: Hashable,
        prompt: Callable[[], Sequence[int]],
        emitted: Sequence[int],
        waiting: bool,
        tenant: str | None = None,
        predicted: Callable[[], Sequence[int]] = tuple,
        limit: Callable[[], int] = lambda: MAX_DRAFTS,
    ) -> None:
        """Add the next request of the batch.

        Args:
            name: Name of the request.
            prompt: Returns the tokens of its prompt; called if the request is new.
            emitted: Tokens that the target has emitted and that were not added before.
            waiting: Whether the request gets no draft in this step.
            tenant: Tenant whose outputs it may copy; None: it shares nothing.
            predicted: Returns a text that it alone may copy, see `Predictions.of`; called if the request is new.
            limit: Returns the most draft tokens of the request, see `draft_limit`; called if the request is new.
        """
        if name not in self.requests:
            copy = self._copy_request(prompt(), tenant, predicted()) if self.copies else None
            self.requests[name] = DraftedRequest(copy, tenant, limit())
        request = self.requests[name]
        if waiting:
            self.batch.append(None)
            self.proposals.append(Proposal.empty(self.longest))
            return
        request.observe(emitted)
        self.batch.append(request)
        proposal = Proposal.empty(self.longest) if request.copy is None else request.copy.propose(self.longest)
        self.proposals.append(proposal.limited(request.limit))

    def _copy_request(self, prompt: Sequence[int], tenant: str | None, predicted: Sequence[int]) -> CopyRequest:
        """Begin prompt lookup in the prompt of a request, and in others that it may copy."""
        before = [] if self.store is None else list(self.store.of(tenant))
        if predicted:
            before += [*predicted, SEPARATOR]
        return CopyRequest(self.table, prompt, self.vocab_size, before)

    def copied(self, count: int) -> Copied:
        """Return the tokens that prompt lookup proposes, with their mixture weights, in the host's memory.

        Args:
            count: Tokens of each request.
        """
        return batch_proposals(self.proposals, count)

    def plan(self, longest: int) -> int:
        """Return how many tokens the drafter should draft for each request of this step; 0: none is worth its time.

        Args:
            longest: Tokens of a draft in this step.
        """
        choices = self.budget.choices(longest)
        if len(choices) == 1 or self._all_copied:
            return 0
        rates = [self._best_of(by_drafter, longest)[0] for by_drafter in choices]
        best = max(rates[1:])
        if best > rates[0]:
            self._planned = choices[rates.index(best, 1)]
        return self._planned

    def uncopied(self, by_drafter: int, longest: int) -> list[int]:
        """Return how many tokens the drafter should draft for each request, if it can leave requests out.

        It leaves out those whose copied tokens are expected to bring as many accepted tokens, in no time.

        Args:
            by_drafter: Tokens that it drafts for the others.
            longest: Tokens of a draft in this step.
        """
        lengths = []
        for request, copied in zip(self.batch, self._predicted(0, longest), strict=True):
            most = 0 if request is None else min(by_drafter, request.limit)
            drafted = 0.0 if request is None else sum(accumulate([request.rate] * most, mul))
            lengths.append(most if drafted > sum(copied) else 0)
        return lengths

    def cut(
        self,
        tokens: list[list[int]],
        longest: int,
        independent: Sequence[bool],
        asked: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Cut each request's draft to the length that is worth verifying.

        A draft that equals what prompt lookup proposes continues with further proposed tokens.

        Args:
            tokens: The drafter's tokens of each request; empty where it did not draft.
            longest: Tokens of a draft in this step.
            independent: Which drafts must not depend on other requests of the batch: those with a seed.
            asked: Tokens that the drafter was to draft for each request, where it may have ended a draft before; None:
                as many as there are.

        Returns:
            The draft tokens of each request.
        """
        asked = list(map(len, tokens)) if asked is None else asked
        by_drafter = max(asked)
        if by_drafter:
            drafts = list(self._with_copies(tokens, longest))
            reached = [list(accumulate(draft.chances, mul)) for draft in drafts]
            ends = self._ends(reached, by_drafter, longest)
        else:
            drafts, reached = self.proposals, self._predicted(0, longest)
            ends = lengths_of(reached, self._best_of(0, longest)).of
        for row in [row for row, one in enumerate(independent) if one]:
            ends[row] = self._independent_end(row, reached[row], asked[row], longest)
        for row, (request, end) in enumerate(zip(self.batch, ends, strict=True)):
            if request is not None and by_drafter:
                request.drafted(tokens[row][:end])
        return [draft.tokens[:end] for draft, end in zip(drafts, ends, strict=True)]

    def common_length(
        self, longest: int, ways: Sequence[DrafterTokens], shortest: int = 1
    ) -> tuple[DrafterTokens, int]:
        """Choose how drafts of one length are made, and that length, before the drafter drafts.

        Args:
            longest: Tokens of a draft in this step.
            ways: Each maps a draft length to the tokens that the drafter drafts for it; the first is used without
                drafts.
            shortest: Tokens of a draft at least; all those of a tree.

        Returns:
            The chosen way, and the length; 0: no drafts.
        """
        best_way, best_length, best_rate = ways[0], 0, 0.0
        for way in ways:
            by_drafter = way[longest]
            spent = [self._drafting_time(tokens) for tokens in way[: longest + 1]]
            predicted = self._predicted(by_drafter, longest)
            found = best_common_length(predicted, longest, self.batch_costs, spent, shortest)
            if found.rate > best_rate:
                best_way, (best_length, best_rate) = way, found
        return best_way, best_length

    def rate_of_copies(self, length: int) -> float:
        """Return the tokens per cost of a step in which this many tokens of each request are copied.

        It is that of a step without drafts where this is higher.

        Args:
            length: Draft tokens of each request.
        """
        free = [0.0] * (length + 1)
        return best_common_length(self._predicted(0, length), length, self.batch_costs, free, shortest=length).rate

    def continued(self, tokens: list[list[int]], longest: int) -> list[list[int]]:
        """Continue each request's draft with proposed tokens where prompt lookup proposes the same ones.

        Args:
            tokens: The drafter's tokens of each request; empty where it did not draft.
            longest: Tokens of a draft in this step.

        Returns:
            The draft tokens of each request.
        """
        return [draft.tokens for draft in self._with_copies(tokens, longest)]

    def drafted(self, drafts: Sequence[list[int]], by_drafter: int) -> None:
        """Record drafts of one common length.

        Args:
            drafts: Draft tokens of each request.
            by_drafter: How many of them the drafter drafted.
        """
        for request, tokens in zip(self.batch, drafts, strict=True):
            if request is not None:
                request.drafted(tokens[: min(by_drafter, request.limit)])

    def drafted_trees(self, depth: int) -> None:
        """Record that the drafts of the batch are trees.

        Args:
            depth: Depth of the trees.
        """
        for request in self.batch:
            if request is not None:
                request.drafted_tree(depth)

    @property
    def batch_costs(self) -> BatchCosts:
        """Costs at this batch size."""
        return self._batch_costs_of(len(self.batch))

    def _batch_costs_of(self, requests: int) -> BatchCosts:
        key = self.greedy, requests
        if key not in self._batch_costs:
            if len(self._batch_costs) >= MAX_CACHED:
                self._batch_costs.clear()
            self._batch_costs[key] = BatchCosts(self.cost.of(self.greedy), requests, requests * self.longest)
        return self._batch_costs[key]

    @property
    def _all_copied(self) -> bool:
        """Whether each token that the drafter might draft is at least as likely to be accepted if it is copied."""
        return self.copies and all(
            request is None or min(copied.chances[: self.budget.tokens]) >= request.rate
            for request, copied in zip(self.batch, self.proposals, strict=True)
        )

    def _drafting_time(self, by_drafter: int) -> float:
        """Return the cost of drafting this many tokens for each request."""
        return self.batch_costs.drafting * self.budget.share(by_drafter)

    def _predicted(self, by_drafter: int, longest: int) -> list[list[float]]:
        """Return predicted probabilities that tokens are reached, if the drafter drafts this many of them."""
        if self._reached is None:
            rows = zip(self.batch, self.proposals, strict=True)
            self._reached = [
                ([], []) if request is None else request.predict_acceptance(proposal.chances, self.budget.tokens)
                for request, proposal in rows
            ]
        return [[*drafted[:by_drafter], *copied[by_drafter:longest]] for drafted, copied in self._reached]

    def _best_of(self, by_drafter: int, longest: int) -> BestDrafts:
        """Return the best drafts by predicted acceptance, if the drafter drafts this many tokens."""
        if (by_drafter, longest) not in self._best:
            self._best[by_drafter, longest] = self.batch_costs.best(
                self._predicted(by_drafter, longest), self._drafting_time(by_drafter)
            )
        return self._best[by_drafter, longest]

    def _ends(self, reached: Probabilities, by_drafter: int, longest: int) -> list[int]:
        """Return the lengths of drafts after drafting; its time is spent, so any gain is worth it."""
        if self.greedy:
            return best_lengths(reached, self.batch_costs, self._drafting_time(by_drafter)).of
        least = least_chance(self._best_of(self._planned or by_drafter, longest), longest, self.batch_costs)
        return [_likely_length(row, least) for row in reached]

    def _independent_end(self, row: int, reached: Sequence[float], by_drafter: int, longest: int) -> int:
        """Return the length of a draft that must not depend on other requests of the batch."""
        batch_costs = self._batch_costs_of(1)
        spent = batch_costs.drafting * self.budget.share(by_drafter)
        if self.greedy or not by_drafter:
            return best_lengths([reached], batch_costs, spent).of[0]
        predicted = self._predicted(by_drafter, longest)[row]
        return _likely_length(reached, least_chance(batch_costs.best([predicted], spent), longest, batch_costs))

    def _with_copies(self, tokens: list[list[int]], longest: int) -> Iterator[Proposal]:
        """Yield the drafter's tokens, followed by proposed tokens where prompt lookup proposes the same ones.

        No draft is longer than its request allows.
        """
        for request, draft, copied in zip(self.batch, tokens, self.proposals, strict=True):
            drafted = len(draft)
            if request is None:
                yield Proposal([], [])
                continue
            chances = [request.rate] * drafted
            for position, (token, proposed) in enumerate(zip(draft, copied.tokens, strict=False)):
                chances[position] = max(request.rate, copied.chances[position])  # known before the token is drawn
                if token != proposed:
                    break
            if draft == copied.tokens[:drafted] and copied.chances[0]:
                end = min(longest, request.limit)
                yield Proposal(copied.tokens[:end], [*chances, *copied.chances[drafted:]][:end])
            else:
                yield Proposal(draft[: request.limit], chances[: request.limit])


def _likely_length(reached: Sequence[float], least: Sequence[float]) -> int:
    """Return how many tokens of a draft are likely enough to be reached, up to the first that is not."""
    for position, (chance, enough) in enumerate(zip(reached, least, strict=False)):
        if not chance or chance < enough:
            return position
    return len(reached)
