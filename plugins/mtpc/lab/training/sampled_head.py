"""Sampled output head, so that training computes logits for a part of the vocabulary only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtpc.lab.text.conversations import Conversation
from mtpc.target_head.shared import SharedHead

SAMPLED_SHARE = 0.25  # rows that are drawn at random, relative to the frequent rows


class SampledHead(SharedHead):
    """Sample of the rows of an output head, each with a weight.

    A softmax over these rows, with log weights added to the logits, estimates the softmax over the whole vocabulary.
    The sum of exponentials is an unbiased estimate, as in stratified sampling. In the log ratio of two such
    distributions the weights cancel.

    Args:
        whole: Output head with all rows.
        ids: Token ids of the sampled rows, int64 [R], ascending.
        log_weights: Log of the number of vocabulary rows that each sampled row represents, float32 [R].
    """

    def __init__(self, whole: SharedHead, ids: Tensor, log_weights: Tensor) -> None:
        super().__init__(whole.embedding, whole.rows[ids], ids)
        self.log_weights = log_weights

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of the sampled rows with their log weights added: states [..., d] -> float32 [..., R]."""
        return super().logits(states).add_(self.log_weights)


@dataclass(frozen=True)
class RowSampler:
    """Sampler of output heads.

    A head holds the rows of the most frequent tokens, those of the batch's tokens, and a random sample of all others.

    Attributes:
        head: Output head with all rows.
        frequent: Token ids whose rows every sample holds, int64 [F].
        seed: Seed of the samples.
    """

    head: SharedHead
    frequent: Tensor
    seed: int = 0

    @classmethod
    def of(cls, head: SharedHead, conversations: Sequence[Conversation], rows: int, seed: int = 0) -> RowSampler:
        """Return a sampler for the most frequent tokens of the conversations.

        Args:
            head: Output head with all rows.
            conversations: Conversations whose tokens are counted.
            rows: Number F of frequent tokens.
            seed: Seed of the samples.
        """
        counts = torch.zeros(head.vocab_size, dtype=torch.int64)
        for conversation in conversations:
            counts += torch.bincount(torch.tensor(conversation.tokens), minlength=head.vocab_size)
        return cls(head, counts.argsort(descending=True, stable=True)[:rows], seed)

    def sample(self, tokens: Tensor, *key: int) -> SampledHead:
        """Return a head for a batch of tokens, int64 of any shape. Equal keys give equal heads."""
        included = torch.zeros(self.head.vocab_size, dtype=torch.bool)
        included[self.frequent] = True
        included[tokens.flatten().cpu()] = True
        others = (~included).nonzero()[:, 0]
        drawn = min(len(others), math.ceil(SAMPLED_SHARE * len(self.frequent)))
        generator = torch.Generator().manual_seed(hash((self.seed, *key)))
        chosen = others[torch.randperm(len(others), generator=generator)[:drawn]]
        log_weights = torch.zeros(self.head.vocab_size)
        log_weights[chosen] = math.log(max(1, len(others)) / max(1, drawn))
        included[chosen] = True
        ids, device = included.nonzero()[:, 0], self.head.rows.device
        return SampledHead(self.head, ids.to(device), log_weights[ids].to(device))
