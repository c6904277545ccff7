"""The draft lengths of a batch, from the tokens that SGLang's scheduler knows of its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mtpc.draft import Draft, Mode, concat_positions, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths, Way
from mtpc.draft_length.cost import FREE, MEASURED, StepCost, measured
from mtpc.draft_length.request import DraftedRequest
from mtpc.methods.drafter import draft_budget
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc import served
from sglang_mtpc.ranks import seconds_of_first_rank
from sglang_mtpc.shape import Shape


class Chosen(NamedTuple):
    """Tokens of each draft of a step: how many the drafter drafts itself, and how many there are in all."""

    own: int
    length: int


class WorkerLengths:
    """The texts of all requests that are held, each forgotten with SGLang's ``Req``, and the lengths of their drafts.

    One step: `begin`, then `copied` and `choose`, then `completed` with the drafter's draft or `drafted_trees`.
    Steps must not overlap: what was emitted in the last one has to be there when the next is drafted.

    Args:
        table: See `DraftLengths`.
        device: Of the drafts.
        budget: Tokens that the drafter drafts itself.
        shape: Of the drafts.
        cost: What steps cost, by which the common length of a step's drafts is chosen; None: it is always the longest.
        copies: Whether prompt lookup drafts as well.
    """

    def __init__(
        self,
        table: CopyTable,
        device: torch.device,
        budget: DraftBudget,
        shape: Shape,
        cost: StepCost | None,
        copies: bool,
    ) -> None:
        self.device, self.shape, self.chooses = device, shape, cost is not None
        self.is_timed = False  # whether steps are still to be timed
        self.least = 0 if device.type == "cpu" else 1  # SGLang's kernels have not been tried with a root alone
        longest = shape.nodes
        self.ways: list[Way] = [[drafted(budget, length) for length in range(longest + 1)]]
        if copies and budget.tokens:
            self.ways.append([0] * (longest + 1))
        requests: WeakKeyDictionary[Any, DraftedRequest] = WeakKeyDictionary()
        self.controller = DraftLengths(budget, longest, cost or FREE, table, None, requests, copies)

    @classmethod
    def of_served(cls, device: torch.device) -> Self | None:
        """That of the drafter that this process serves; None: all drafts have one length, and nothing is copied."""
        copies, adapts = served.copies(), served.adapts()
        if not copies and not adapts:
            return None
        shape, table = served.shape(), CopyTable.of(Path(served.folder()))
        budget = draft_budget(served.config(), shape.depth, copies)
        given = served.step_cost()
        made = cls(table, device, budget, shape, (given or MEASURED) if adapts else None, copies)
        made.is_timed = adapts and given is None and device.type == "cpu"
        return made

    def time(self, step: Callable[[int], object], draft: Callable[[int], object], requests: int) -> None:
        """Time what steps cost, unless the user has said so; see `mtpc.draft_length.cost.measured`."""
        if self.is_timed:
            drafts = draft if self.controller.budget.tokens else None
            most = requests * (1 + self.shape.nodes)
            self.controller.cost = measured(step, drafts, most, requests, seconds_of_first_rank)
            served.announce_cost(self.controller.cost)

    def begin(self, requests: Sequence[Any], greedy: bool = True) -> None:
        """Begin a step of SGLang's requests; greedy: whether every one has a temperature of 0."""
        self.controller.begin(greedy)
        for request in requests:
            known = self.controller.requests.get(request)
            heard = len(request.output_ids) if known is None else known.heard
            self.controller.add(request, partial(_text_of, request), request.output_ids[heard:], waiting=False)
            self.controller.requests[request].heard = len(request.output_ids)

    def copied(self, drafts: int) -> Copied:
        """Return the first tokens that would be copied, with no chance where there are none."""
        return self.controller.copied(drafts).to(self.device)

    def choose(self) -> Chosen:
        """Choose what each draft of the batch is to be, before any is drafted: what is cut off was not seen."""
        longest = self.shape.nodes
        if not self.chooses:
            return Chosen(self.ways[0][longest], longest)
        shortest = longest if self.shape.children > 1 else 1
        way, length = self.controller.common_length(longest, self.ways, shortest)
        length = max(self.least, length)
        return Chosen(way[length], length)

    def completed(self, draft: Draft, copied: Copied, chosen: Chosen) -> Draft:
        """Return the drafter's draft of the chosen length; beyond its tokens it goes on with what would be copied."""
        longer = lengthened(draft, copied.first(chosen.length)).first(chosen.length)
        if self.chooses:
            self.controller.drafted(longer.tokens.tolist(), chosen.own)
        return longer


def nothing(tokens: Tensor, vocab_size: int, mode: Mode) -> Draft:
    """Return drafts of no token, [B, 0], of requests with these tokens, int64 [B]."""
    none = tokens.new_empty(len(tokens), 0, dtype=torch.int64)
    return Draft(none, None if mode == "greedy" else one_hot(none, vocab_size))


def drafted(budget: DraftBudget, length: int) -> int:
    """Return how many tokens a drafter drafts itself where each draft is to have so many.

    Where a parallel part follows the autoregressive one, both draft all of theirs.
    """
    if length and 0 < budget.steps < budget.tokens:
        return budget.tokens
    return min(length, budget.tokens)


def _text_of(request: Any) -> list[int]:
    """Prompt and output of SGLang's ``Req``."""
    return [*request.origin_input_ids, *request.output_ids]


def lengthened(draft: Draft, copied: Copied) -> Draft:
    """A draft that goes on with what would be copied after it, as long as that is: [B, m].

    These tokens are certain, and stated so.  All drafts of SGLang's have one length, so they are there also where the
    draft itself was not copied, and are then seldom accepted.
    """
    tokens = copied.tokens[:, draft.tokens.shape[1] :]
    if draft.probs is None:
        return concat_positions([draft, Draft(tokens, None)])
    return concat_positions([draft, Draft(tokens, one_hot(tokens, draft.probs.shape[2]))])
