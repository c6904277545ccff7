"""Training batches of whole conversations, in which every chosen position is an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.settings import LearnFrom

SORTED_UPDATES = 64  # updates whose conversations are sorted by length together


class ConversationBatch(NamedTuple):
    """Padded conversations and the draft starts to train on.

    Attributes:
        tokens: Token ids, int64 [B, L], padded on the right with 0.
        chosen: Mask of the starts to train on, bool [B, L - K - 1].
    """

    tokens: Tensor
    chosen: Tensor


def collate(
    conversations: Sequence[Conversation], steps: int, context: int, learn_from: LearnFrom = "answers"
) -> ConversationBatch:
    """Collate the first ``context`` tokens of each conversation into one batch.

    A draft that starts at position i continues t_{i+1}. That token belongs to the answer from i = start - 1 on.

    Args:
        conversations: B conversations.
        steps: Draft tokens K per start.
        context: Longest conversation, in tokens. Longer ones are truncated.
        learn_from: "answers" trains on the answers only; "all" on the questions too.

    Returns:
        The batch, padded to its longest conversation.
    """
    rows = [conversation.tokens[:context] for conversation in conversations]
    length = max(steps + 2, *(len(row) for row in rows))
    tokens = torch.zeros(len(rows), length, dtype=torch.int64)
    chosen = torch.zeros(len(rows), length - steps - 1, dtype=torch.bool)
    for i, (row, conversation) in enumerate(zip(rows, conversations, strict=True)):
        tokens[i, : len(row)] = torch.tensor(row)
        first = conversation.start - 1 if learn_from == "answers" else 0
        chosen[i, first : max(0, len(row) - steps - 1)] = True
    return ConversationBatch(tokens, chosen)


def sample_starts(chosen: Tensor, share: float, *key: int) -> Tensor:
    """Sample a run of consecutive starts from each conversation.

    Consecutive starts share the target's distributions that their drafts are compared with.

    Args:
        chosen: Mask of the candidate starts, bool [B, T].
        share: Share of the candidates to keep, in (0, 1]. At least one is kept.
        key: Seed. Equal keys give equal samples.

    Returns:
        Mask of the sampled starts, bool [B, T].
    """
    random = np.random.default_rng(key)
    sampled = torch.zeros_like(chosen)
    for row, starts in zip(sampled, chosen, strict=True):
        (positions,) = starts.nonzero(as_tuple=True)
        count = min(len(positions), max(1, round(share * len(positions))))
        first = int(random.integers(len(positions) - count + 1))
        row[positions[first : first + count]] = True
    return sampled


def epoch_batches(lengths: Sequence[int], batch: int, epoch: int, seed: int) -> list[list[int]]:
    """Assign conversations to the updates of one epoch.

    Conversations of one update have similar lengths, so little is padded. Random groups of `SORTED_UPDATES` updates are
    sorted by length and cut into updates. The order of the updates is then shuffled.

    Args:
        lengths: Tokens of each conversation.
        batch: Conversations of average length per update. Their tokens are the budget of an update.
        epoch: Number of the epoch, from 0.
        seed: Seed of the assignment.

    Returns:
        Conversation numbers of each update.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths)).tolist()
    window, budget = SORTED_UPDATES * batch, batch * sum(lengths) / len(lengths)
    batches: list[list[int]] = []
    for first in range(0, len(order), window):
        space = 0.0
        for i in sorted(order[first : first + window], key=lengths.__getitem__):
            if space < lengths[i] / 2:  # nearer to the budget without it
                batches.append([])
                space = budget
            batches[-1].append(i)
            space -= lengths[i]
    return [batches[i] for i in random.permutation(len(batches))]
