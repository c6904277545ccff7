"""The output head by a sample of its rows, so that training need not compute the logits of a whole vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtpc.lab.text.conversations import Conversation
from mtpc.target_head.shared import SharedHead

SAMPLED_SHARE = 0.25  # of the rows that are always there: as many others are drawn


class SampledHead(SharedHead):
    """Some rows of a head, each standing for as many rows as its weight says.

    With log weights added to the logits, a softmax over these rows estimates the whole vocabulary's: the sum of
    exponentials is an unbiased estimate of all rows' (a stratified sample), and in the logarithm of a ratio of two such
    distributions the weights cancel.
    """

    def __init__(self, whole: SharedHead, ids: Tensor, log_weights: Tensor) -> None:
        """ids: int64 [R], ascending.  log_weights: float32 [R]."""
        super().__init__(whole.embedding, whole.rows[ids], ids)
        self.log_weights = log_weights

    def logits(self, states: Tensor) -> Tensor:
        """Of the sampled rows, their log weights added: states [..., d] -> float32 [..., R]."""
        return super().logits(states).add_(self.log_weights)


@dataclass(frozen=True)
class RowSampler:
    """Draws heads: the rows of the most frequent tokens and of the batch's own, and some of all others.

    head: the whole one.  frequent: int64, the tokens whose rows are always there.
    """

    head: SharedHead
    frequent: Tensor
    seed: int = 0

    @classmethod
    def of(cls, head: SharedHead, conversations: Sequence[Conversation], rows: int, seed: int = 0) -> RowSampler:
        """rows: how many tokens count as frequent, by how often the conversations have them."""
        counts = torch.zeros(head.vocab_size, dtype=torch.int64)
        for conversation in conversations:
            counts += torch.bincount(torch.tensor(conversation.tokens), minlength=head.vocab_size)
        return cls(head, counts.argsort(descending=True, stable=True)[:rows], seed)

    def sample(self, tokens: Tensor, *key: int) -> SampledHead:
        """A head for a batch of tokens, int64 of any shape; the same for the same key."""
        certain = torch.zeros(self.head.vocab_size, dtype=torch.bool)
        certain[self.frequent] = True
        certain[tokens.flatten().cpu()] = True
        others = (~certain).nonzero()[:, 0]
        drawn = min(len(others), math.ceil(SAMPLED_SHARE * len(self.frequent)))
        generator = torch.Generator().manual_seed(hash((self.seed, *key)))
        chosen = others[torch.randperm(len(others), generator=generator)[:drawn]]
        log_weights = torch.zeros(self.head.vocab_size)
        log_weights[chosen] = math.log(max(1, len(others)) / max(1, drawn))
        certain[chosen] = True
        ids, device = certain.nonzero()[:, 0], self.head.rows.device
        return SampledHead(self.head, ids.to(device), log_weights[ids].to(device))
