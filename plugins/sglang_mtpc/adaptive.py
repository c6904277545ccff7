"""Drafts whose length is chosen before each step, whatever part of a drafter makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtpc.draft import Draft, TreeDraft
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.draft_lengths import Chosen, WorkerLengths, nothing
from sglang_mtpc.step import Step

Lap = Callable[[str], None]  # told of each part of drafting once it is done, see `DraftClock`
# What makes the drafts of a step, of SGLang's ``ScheduleBatch``: a worker chooses one when it is made.
Strategy = Callable[[Any, Step], Draft | TreeDraft]
# Makes so many tokens of the drafter's, each mixed with what would be copied in its place.
Mixed = Callable[[Any, Step, Copied, int], Draft]


class AdaptiveTree:
    """The whole tree of a strategy, or none where it is not worth its time."""

    def __init__(self, lengths: WorkerLengths, whole: Strategy, lap: Lap, vocab_size: int) -> None:
        self.lengths, self.whole, self.lap, self.vocab_size = lengths, whole, lap, vocab_size

    def __call__(self, batch: Any, step: Step) -> Draft | TreeDraft:
        """A draft of each request."""
        chosen = _chosen(self.lengths, batch, step)
        self.lap("lengths")
        if not chosen.length:
            return nothing(batch.spec_info.bonus_tokens, self.vocab_size, step.mode)
        self.lengths.controller.drafted_trees(self.lengths.shape.depth)
        return self.whole(batch, step)


class AdaptiveChain:
    """A chain of the chosen length: the drafter's tokens, mixed with what would be copied, then that alone."""

    def __init__(self, lengths: WorkerLengths, mixed: Mixed, lap: Lap, vocab_size: int) -> None:
        self.lengths, self.mixed, self.lap, self.vocab_size = lengths, mixed, lap, vocab_size
        self.copies_alone = not lengths.controller.budget.tokens  # then the drafter's tokens are copies, too

    def __call__(self, batch: Any, step: Step) -> Draft:
        """A draft of each request."""
        chosen, copied = _chosen(self.lengths, batch, step), self.lengths.copied(self.lengths.shape.depth)
        self.lap("lengths")
        if chosen.own or (chosen.length and self.copies_alone):
            draft = self.mixed(batch, step, copied, chosen.own)
        else:
            draft = nothing(batch.spec_info.bonus_tokens, self.vocab_size, step.mode)
        draft = self.lengths.completed(draft, copied, chosen)
        self.lap("lengths")
        return draft


def _chosen(lengths: WorkerLengths, batch: Any, step: Step) -> Chosen:
    """What each draft of the batch is to be in this step."""
    lengths.begin(batch.reqs, step.mode == "greedy")
    return lengths.choose()
