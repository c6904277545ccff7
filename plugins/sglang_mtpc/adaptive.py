"""Draft strategies that choose the draft length before each decoding step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtpc.draft import Draft, TreeDraft
from mtpc.draft_model.part import LazyDraft
from mtpc.prompt_lookup.mixture import Copied
from sglang_mtpc.draft_lengths import ChosenLength, WorkerLengths, empty_drafts
from sglang_mtpc.step import BatchStep

Lap = Callable[[str], None]  # called with the name of each part of drafting when it ends, see `DraftClock`
# Drafts for SGLang's ``ScheduleBatch`` in one step.  A worker chooses its strategy when it is created.
Strategy = Callable[[Any, BatchStep], Draft | TreeDraft | LazyDraft]
Whole = Callable[[Any, BatchStep], Draft | TreeDraft]  # one that drafts with an autoregressive or a parallel part
# Drafts the given number of drafter tokens, each sampled from the mixture with prompt lookup.
Mixed = Callable[[Any, BatchStep, Copied, int], Draft]


class AdaptiveTree:
    """Draft the whole tree of another strategy, or no tree in a step where it is not worth its time.

    Args:
        lengths: Chooses the draft length of each step.
        whole: Strategy that drafts the tree.
        lap: Called after each part of drafting, see `DraftClock`.
        vocab_size: Tokens of the target's vocabulary.
    """

    def __init__(self, lengths: WorkerLengths, whole: Whole, lap: Lap, vocab_size: int) -> None:
        self.lengths, self.whole, self.lap, self.vocab_size = lengths, whole, lap, vocab_size

    def __call__(self, batch: Any, step: BatchStep) -> Draft | TreeDraft:
        """Return a draft for each request of the batch."""
        chosen = _choose_length(self.lengths, batch, step)
        self.lap("lengths")
        if not chosen.length:
            return empty_drafts(batch.spec_info.bonus_tokens, self.vocab_size, step.mode)
        self.lengths.controller.drafted_trees(self.lengths.shape.depth)
        return self.whole(batch, step)


class AdaptiveChain:
    """Draft a chain of the chosen length.

    It begins with drafter tokens, sampled from the mixture with prompt lookup, and ends with copied tokens.

    Args:
        lengths: Chooses the draft length of each step.
        mixed: Drafts the drafter tokens.
        lap: Called after each part of drafting, see `DraftClock`.
        vocab_size: Tokens of the target's vocabulary.
    """

    def __init__(self, lengths: WorkerLengths, mixed: Mixed, lap: Lap, vocab_size: int) -> None:
        self.lengths, self.mixed, self.lap, self.vocab_size = lengths, mixed, lap, vocab_size
        self.drafter_only_copies = not lengths.controller.budget.tokens  # its drafter tokens are copies, too

    def __call__(self, batch: Any, step: BatchStep) -> Draft:
        """Return a draft for each request of the batch."""
        chosen, copied = _choose_length(self.lengths, batch, step), self.lengths.copied(self.lengths.shape.depth)
        self.lap("lengths")
        if chosen.drafter_tokens or (chosen.length and self.drafter_only_copies):
            draft = self.mixed(batch, step, copied, chosen.drafter_tokens)
        else:
            draft = empty_drafts(batch.spec_info.bonus_tokens, self.vocab_size, step.mode)
        draft = self.lengths.extend_with_copied(draft, copied, chosen)
        self.lap("lengths")
        return draft


def _choose_length(lengths: WorkerLengths, batch: Any, step: BatchStep) -> ChosenLength:
    """Begin a step of the batch and return its draft length."""
    lengths.begin(batch.reqs, step.mode == "greedy")
    return lengths.choose()
