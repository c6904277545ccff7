"""What the requests of a batch would copy, from the tokens that SGLang's scheduler knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mtpc.autoregressive.config import SerialConfig
from mtpc.draft import Draft, Mode, certain, concatenated
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import MEASURED, StepCost
from mtpc.draft_length.measured import StepTimes
from mtpc.draft_length.one_length import OneLength, Way
from mtpc.draft_length.request import Request
from mtpc.methods.drafter import own_drafts
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc import served
from sglang_mtpc.ranks import told_by_first_rank

# Of a first pass that does not wait (see `remembers`), in passes, what every step on a CPU takes: all of it but the
# output head, which takes SmolLM2 0.9 ms on two cores, of 4.5 ms for a pass of one layer and the head.
SPARED = 1.8


class Chosen(NamedTuple):
    """Of each draft of a step: how many tokens the drafter drafts itself, and how many it has in all; both at most."""

    own: int
    length: int


class WorkerCopying:
    """The texts of all requests that are held, each forgotten with SGLang's ``Req``.

    Steps must not overlap: what was said in the last one has to be there when the next is drafted.

    own: tokens that the drafter itself drafts, of ``longest``.  cost: of steps, by which the common length of a step's
    drafts is chosen; None: it is always ``longest``.  alone: whether this step has one draft, whose length is then
    chosen once it is drafted.  first_waits: whether a serial part's first draft is made when the step begins that is to
    verify it, see `sglang_mtpc.first_draft`.  remembers: whether its first pass waits as well, so that other steps
    compute its keys alone.  ways: of `OneLength.common_length`: drafts are the drafter's and go on as copies; where the
    first one waits, they may also be copies alone.
    """

    alone = False

    def __init__(
        self,
        table: CopyTable,
        device: torch.device,
        own: Own,
        longest: int,
        cost: StepCost | None = None,
        remembers: bool = False,
    ) -> None:
        self.device, self.chooses, self.remembers = device, cost is not None, remembers
        self.first_waits = device.type == "cpu"
        self.least = 0 if self.first_waits else 1  # SGLang's kernels have not been tried with trees of a root alone
        self.ways: list[Way] = [[drafted(own, length, self.first_waits) for length in range(longest + 1)]]
        if own.count and self.first_waits:
            self.ways.append([0] * (longest + 1))
        times = None if cost is None or cost.fixed else StepTimes(cost, told_by_first_rank)
        texts: WeakKeyDictionary[Any, Request] = WeakKeyDictionary()
        self.batch = OneLength(own, longest, cost or MEASURED, table, None, texts, times, _number_of)

    @classmethod
    def of_served(cls, device: torch.device) -> Self | None:
        """Of the drafter that this process serves; None: nothing is copied."""
        if not served.copies():
            return None
        table, longest = CopyTable.of(Path(served.folder())), served.shape().depth
        own, serial = own_drafts(*served.read(served.folder()), longest), served.config().serial
        cost, waits = served.step_cost(), False
        if serial is not None and device.type == "cpu":
            waits = cost is not None and remembers(own, serial)
            own = own if waits else replace(own, spared=SPARED)
        return cls(table, device, own, longest, cost, waits)

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
        """What each draft of the batch is to be, known before any is drafted: what is cut off was not seen.

        A request alone, on a CPU, may get less than that.
        """
        self.alone = self.chooses and self.first_waits and len(self.batch.batch) == 1
        if self.alone:
            own = self.batch.own
            return Chosen(own.up_to(self.batch.own_that_pay(longest), longest), longest)
        way, length = self.batch.common_length(longest, self.ways) if self.chooses else (self.ways[0], longest)
        length = max(self.least, length)
        return Chosen(way[length], length)

    @property
    def may_ask(self) -> bool:
        """Whether a layer that drafts is asked after each token whether it goes on, in steps of one request."""
        return self.chooses and self.first_waits and self.batch.own.by_pass

    @property
    def asks(self) -> bool:
        """The same of this step."""
        return self.alone and self.may_ask

    def goes_on(self, tokens: Tensor, peaks: Tensor) -> bool:
        """See `BatchCopying.goes_on`: int64 [B] and float32 [B]."""
        return self.batch.goes_on(tokens.tolist(), peaks.tolist())

    def completed(self, draft: Draft, copied: Copied, chosen: Chosen) -> Draft:
        """The drafter's drafts, which go on with what would be copied, of the length that they are to have."""
        length = self._length_alone(draft.first(chosen.own), chosen.length) if self.alone else chosen.length
        longer = lengthened(draft, copied.first(length)).first(length)
        if self.chooses and not self.alone:
            share = self.batch.own.share
            self.batch.drafted(longer.tokens.tolist(), chosen.own, share(chosen.own) - share(self.ways[0][0]))
        return longer

    def _length_alone(self, draft: Draft, longest: int) -> int:
        """Of the only draft of a step, which has come so far by the drafter alone."""
        (tokens,) = self.batch.lengths(draft.tokens.tolist(), draft.sure, longest, [False])
        return len(tokens)


def remembers(own: Own, serial: SerialConfig) -> bool:
    """Whether a step on a CPU that drafts nothing computes a serial part's keys alone: one layer's need nothing else.

    The first pass waits for a step that drafts, and is then made as those of SGLang's loop, which has two tokens at
    least.
    """
    return own.by_pass and own.most > 1 and serial.num_hidden_layers == 1


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


def _number_of(request: Any) -> int:
    """Of SGLang's ``Req``, whose place in memory another one may take on one rank alone."""
    return hash(request.rid)


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
