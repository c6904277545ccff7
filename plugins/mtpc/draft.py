"""Drafts: tokens with the distributions that they were drawn from, as a chain or as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mtpc.target_head.shared import Head

# Limits of draft tokens in a chain and of nodes in a tree. Longer drafts give no speedup and exhaust memory.
MAX_DRAFTS, MAX_TREE_NODES = 256, 4096
Mode = Literal["sampled", "greedy", "mixed"]  # whether every, no or some temperature of a batch is positive


class Draft(NamedTuple):
    """Draft tokens of a batch and the distributions that they were drawn from.

    Attributes:
        tokens: int64 [B, K].
        probs: float32 [B, K, V], the exact conditionals q(x_i | x_<i) at each request's temperature. None where all
            requests are greedy. For a greedy request of a mixed batch, any distribution that gives its draft tokens a
            positive probability: the target's distribution is one-hot there, so verification has the same result.
    """

    tokens: Tensor
    probs: Tensor | None

    def first(self, count: int) -> Draft:
        """Return the draft of the first ``count`` positions."""
        return Draft(self.tokens[:, :count], None if self.probs is None else self.probs[:, :count])


class TreeDraft(NamedTuple):
    """A tree of draft tokens for each request, the most probable prefix first.

    The tree is a deterministic function of the context, so every node's draft distribution is one-hot.

    Attributes:
        tokens: int64 [B, N], the last token of each prefix. Siblings have different tokens.
        parents: int64 [B, N], the index of the node that a node continues, always an earlier one. -1 where it follows
            the token that the target sampled.
        scores: float [B, N], log q of each prefix, at most that of its parent.
    """

    tokens: Tensor
    parents: Tensor
    scores: Tensor


class DraftContext(NamedTuple):
    """What a parallel part is conditioned on: s + 1 positions, oldest first, after s autoregressive draft steps.

    Attributes:
        states: [B, s + 1, d]. First the target's state h_t after its final norm, or the state that the autoregressive
            part reads (see `TargetInterface.state_below`). Then the output state of each draft step.
        tokens: int64 [B, s + 1], the token after each position: the target's x_{t+1}, then the draft tokens.
        inputs: [B, s + 1, d], the input of the draft layers at each position; without draft layers, the target's
            embedding of each token.
        head: The target's output head, or its rows of a draft vocabulary. ``inputs`` and ``head`` are None for a
            parallel part that does not read them (`ParallelPart.reads_head`).
    """

    states: Tensor
    tokens: Tensor
    inputs: Tensor | None = None
    head: Head | None = None

    def of_rows(self, rows: slice) -> DraftContext:
        """Return the context of some requests."""
        inputs, head = self.inputs, self.head
        return DraftContext(
            self.states[rows],
            self.tokens[rows],
            None if inputs is None else inputs[rows],
            None if head is None else head.of_rows(rows),
        )

    @classmethod
    def of_target(cls, hidden: Tensor, token: Tensor) -> DraftContext:
        """Return the context of a drafter without an autoregressive part.

        Args:
            hidden: The target's state, [B, d].
            token: int64 [B], the token x_{t+1} that the target sampled.
        """
        return cls(hidden[:, None], token[:, None])


def one_hot(tokens: Tensor, vocab_size: int) -> Tensor:
    """Return the one-hot distributions of deterministic draft tokens.

    Args:
        tokens: int64 [B, K].
        vocab_size: V.

    Returns:
        float32 [B, K, V].
    """
    return torch.zeros(*tokens.shape, vocab_size, device=tokens.device).scatter_(2, tokens[..., None], 1.0)


def concat_requests(drafts: list[Draft]) -> Draft:
    """Concatenate drafts along the batch dimension.

    Args:
        drafts: Drafts of the same length K. Either all have ``probs``, or none has.

    Returns:
        One draft of the requests of all drafts, in their order.
    """
    probs = [draft.probs for draft in drafts if draft.probs is not None]
    return Draft(torch.cat([draft.tokens for draft in drafts]), torch.cat(probs) if probs else None)


def concat_positions(drafts: list[Draft]) -> Draft:
    """Concatenate drafts along the position dimension: the autoregressive part's draft, then the parallel part's.

    Args:
        drafts: Drafts of the same requests. Either all have ``probs``, or none has.

    Returns:
        One draft of all positions.
    """
    if len(drafts) == 1:
        return drafts[0]
    probs = [draft.probs for draft in drafts if draft.probs is not None]
    assert len(probs) in (0, len(drafts))
    return Draft(torch.cat([draft.tokens for draft in drafts], 1), torch.cat(probs, 1) if probs else None)
