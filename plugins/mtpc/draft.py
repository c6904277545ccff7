"""What a draft is: tokens with the distributions they were drawn from, or a tree of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mtpc.target_head.shared import Head

# Tokens of a draft at most, one after the other, and of a tree of drafts: more never pay, and what a step allocates for
# them no machine has.
MAX_DRAFTS, MAX_TREE_NODES = 256, 4096
Mode = Literal["sampled", "greedy", "mixed"]  # every temperature of a batch is positive, none is, or some are


class Draft(NamedTuple):
    """Drafted tokens and the distributions they were drawn from.

    tokens: int64 [B, K].  probs: float32 [B, K, V], the exact conditionals q(x_i | x_<i) at the request's temperature;
    None where all rows are greedy.  In the greedy rows of a mixed batch they are any that give the drafted tokens a
    positive probability: the target's distribution is one-hot there, so the verdict is the same.  peaks: float32
    [B, K], the largest probability of each conditional; None where nobody asked.
    """

    tokens: Tensor
    probs: Tensor | None
    confidences: Tensor | None = None

    @property
    def host_confidences(self) -> list[list[float]]:
        """``confidences`` on the host, of no row where nobody asked."""
        return [] if self.confidences is None else self.confidences.tolist()

    def first(self, count: int) -> Draft:
        """So many tokens."""
        return Draft(*(None if each is None else each[:, :count] for each in self))  # type: ignore[arg-type]


class TreeDraft(NamedTuple):
    """Drafted prefixes that share their beginnings, the most probable first.

    tokens: int64 [B, N], the last token of each prefix; siblings have different ones.  parents: int64 [B, N], the
    node that a node continues, always an earlier one; -1 where it follows the target's own token.  scores: [B, N],
    log q of each prefix, at most that of its parent.  The tree is a function of what is known, so the distribution that
    a node was drawn from is one-hot.
    """

    tokens: Tensor
    parents: Tensor
    scores: Tensor


class DraftContext(NamedTuple):
    """What is known when a window is drafted, the oldest first: s + 1 places, s of them of the autoregressive part's steps.

    states: [B, s + 1, d], the target's state h_t after its final norm, or the other one that an autoregressive part reads (see
    `TargetInterface.state_below`), then that of each step of the autoregressive part.
    tokens: int64 [B, s + 1], the token that each state predicted: the target's own x_{t+1}, then the autoregressive part's
    drafts.  inputs: [B, s + 1, d], what a step of the autoregressive part reads of each place, and head: the target's output
    head, or its rows of a draft vocabulary; both None for a window that does without (`ParallelPart.reads_autoregressive`).
    """

    states: Tensor
    tokens: Tensor
    inputs: Tensor | None = None
    head: Head | None = None

    def of_rows(self, rows: slice) -> DraftContext:
        """Some rows alone."""
        inputs, head = self.inputs, self.head
        return DraftContext(
            self.states[rows],
            self.tokens[rows],
            None if inputs is None else inputs[rows],
            None if head is None else head.of_rows(rows),
        )

    @classmethod
    def of_target(cls, hidden: Tensor, token: Tensor) -> DraftContext:
        """Of a drafter without an autoregressive part: hidden [B, d], token int64 [B]."""
        return cls(hidden[:, None], token[:, None])


def one_hot(tokens: Tensor, vocab_size: int) -> Tensor:
    """The distributions that make these tokens, int64 [B, K], certain: float32 [B, K, V]."""
    return torch.zeros(*tokens.shape, vocab_size, device=tokens.device).scatter_(2, tokens[..., None], 1.0)


def concat_requests(drafts: list[Draft]) -> Draft:
    """The drafts of parts of a batch; all have distributions and peaks, or none has."""
    probs, confidences = ([each for each in kept if each is not None] for kept in list(zip(*drafts, strict=True))[1:])
    tokens = torch.cat([draft.tokens for draft in drafts])
    return Draft(tokens, torch.cat(probs) if probs else None, torch.cat(confidences) if confidences else None)


def concat_positions(drafts: list[Draft]) -> Draft:
    """The drafts of both parts, one after the other; both state distributions, or none does."""
    if len(drafts) == 1:
        return drafts[0]
    probs = [draft.probs for draft in drafts if draft.probs is not None]
    assert len(probs) in (0, len(drafts))
    confidences = [draft.confidences for draft in drafts if draft.confidences is not None]
    tokens = torch.cat([draft.tokens for draft in drafts], 1)
    return Draft(tokens, torch.cat(probs, 1) if probs else None, torch.cat(confidences, 1) if confidences else None)
