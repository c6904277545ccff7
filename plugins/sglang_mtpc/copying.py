"""What the requests of a batch would copy, from the tokens that SGLang's scheduler knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mtpc.copying.batch import BatchCopying, Way
from mtpc.copying.mixture import Copied
from mtpc.copying.table import CopyTable
from mtpc.draft import Draft, Mode, certain, concatenated
from mtpc.families.drafter import own_drafts
from mtpc.own import Own
from mtpc.step_cost import MEASURED, StepCost
from mtpc.step_times import StepTimes
from sglang_mtpc import served
from sglang_mtpc.ranks import told_by_first_rank


class Chosen(NamedTuple):
    """Of each draft of a step: how many tokens the drafter drafts itself, and how many it has in all."""

    own: int
    length: int


class WorkerCopying:
    """The texts of all requests that are held, each forgotten with SGLang's ``Req``.

    Steps must not overlap: what was said in the last one has to be there when the next is drafted.

    own: tokens that the drafter itself drafts, of ``longest``.  cost: of steps, by which the common length of a step's
    drafts is chosen; None: it is always ``longest``.  first_waits: whether a serial part's first draft is made when the
    step begins that is to verify it, see `sglang_mtpc.first_draft`.  ways: of `BatchCopying.common_length`: drafts are
    the drafter's and go on as copies; where the first one waits, they may also be copies alone.
    """

    def __init__(
        self, table: CopyTable, device: torch.device, own: Own, longest: int, cost: StepCost | None = None
    ) -> None:
        self.device, self.chooses = device, cost is not None
        self.first_waits = device.type == "cpu"
        self.least = 0 if self.first_waits else 1  # SGLang's kernels have not been tried with trees of a root alone
        self.ways: list[Way] = [[drafted(own, length, self.first_waits) for length in range(longest + 1)]]
        if own.count and self.first_waits:
            self.ways.append([0] * (longest + 1))
        times = None if cost is None or cost.fixed else StepTimes(cost, told_by_first_rank)
        self.batch = BatchCopying(own, longest, cost or MEASURED, table, requests=WeakKeyDictionary(), times=times)

    @classmethod
    def of_served(cls, device: torch.device) -> Self | None:
        """Of the drafter that this process serves; None: nothing is copied."""
        if not served.copies():
            return None
        table, longest = CopyTable.of(Path(served.folder())), served.shape().depth
        own = own_drafts(*served.read(served.folder()), longest)
        return cls(table, device, own, longest, served.step_cost())

    def copied(self, requests: Sequence[Any], drafts: int, greedy: bool = True) -> Copied:
        """The next so many tokens of each ``Req`` of the batch, with no chance where there is nothing to copy.

        greedy: whether every request has a temperature of 0.
        """
        self.batch.begin(greedy)
        for request in requests:
            known = self.batch.requests.get(request)
            heard = 0 if known is None else known.copy.said
            self.batch.add(request, partial(_prompt_of, request), request.output_ids[heard:], waiting=False)
        tokens, chances = map(torch.from_numpy, self.batch.copied(drafts))
        return Copied(tokens.to(self.device), chances.to(self.device))

    def length(self, longest: int) -> Chosen:
        """What each draft of the batch is to be, known before any is drafted: what is cut off was not seen."""
        way, length = self.batch.common_length(longest, self.ways) if self.chooses else (self.ways[0], longest)
        length = max(self.least, length)
        return Chosen(way[length], length)

    def cut(self, draft: Draft, chosen: Chosen) -> Draft:
        """Drafts of a step that is to verify so many tokens of each."""
        if self.chooses:
            draft = draft.first(chosen.length)
            share = self.batch.own.share
            self.batch.drafted(draft.tokens.tolist(), chosen.own, share(chosen.own) - share(self.ways[0][0]))
        return draft


def nothing(tokens: Tensor, vocab_size: int, mode: Mode) -> Draft:
    """Drafts of no token where the drafter drafts nothing itself: [B, 0].

    tokens: int64 [B].  vocab_size: V.
    """
    none = tokens.new_empty(len(tokens), 0, dtype=torch.int64)
    return Draft(none, None if mode == "greedy" else certain(none, vocab_size))


def drafted(own: Own, length: int, first_waits: bool) -> int:
    """How many tokens a drafter drafts itself where each draft is to have so many.

    first_waits: as of `WorkerCopying`; otherwise a serial part drafts its first in any step.  Where a window part
    follows it, both draft all of theirs.
    """
    if own.serial and (length or not first_waits):
        return own.count if own.serial < own.count else max(1, min(length, own.count))
    return min(length, own.count)


def _prompt_of(request: Any) -> Sequence[int]:
    """Of SGLang's ``Req``."""
    prompt: Sequence[int] = request.origin_input_ids
    return prompt


def lengthened(draft: Draft, copied: Copied) -> Draft:
    """A draft that goes on with what would be copied after it, as long as that is: [B, m].

    These tokens are certain, and stated so.  All drafts of SGLang's have one length, so they are there also where the
    draft itself was not copied, and are then seldom accepted.
    """
    tokens = copied.tokens[:, draft.tokens.shape[1] :]
    if draft.probs is None:
        return concatenated([draft, Draft(tokens, None)])
    return concatenated([draft, Draft(tokens, certain(tokens, draft.probs.shape[2]))])
