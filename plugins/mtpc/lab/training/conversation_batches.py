"""Training batches: whole conversations, of which every position that is learnt from is an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.settings import LearnFrom

SORTED_UPDATES = 64  # updates whose conversations are sorted by length


class ConversationBatch(NamedTuple):
    """tokens: int64 [B, L], padded on the right; chosen: bool [B, L - K - 1], the starts whose drafts are learnt."""

    tokens: Tensor
    chosen: Tensor


def collate(
    conversations: Sequence[Conversation], steps: int, context: int, learn_from: LearnFrom = "answers"
) -> ConversationBatch:
    """A batch of the first ``context`` tokens of each conversation.

    A draft that starts at i follows t_{i+1}, the target's own token, which is in the answer from i = start - 1 on.
    "all" learns from the questions too, which the target wrote as well.
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
    """A run of each row's chosen starts, drawn at random: bool [B, T] -> bool [B, T].

    Neighbours, because the distributions of the target that their drafts are compared with are the same ones.  share:
    of the row's starts, in (0, 1], at least one.  key: the same for the same runs.
    """
    random = np.random.default_rng(key)
    kept = torch.zeros_like(chosen)
    for row, starts in zip(kept, chosen, strict=True):
        (places,) = starts.nonzero(as_tuple=True)
        count = min(len(places), max(1, round(share * len(places))))
        first = int(random.integers(len(places) - count + 1))
        row[places[first : first + count]] = True
    return kept


def epoch_batches(lengths: Sequence[int], batch: int, epoch: int, seed: int) -> list[list[int]]:
    """The conversations of each update of an epoch: a function of the seed.

    Those of an update are of like length, so that little is padded, and as many as have the tokens of ``batch`` average
    ones: of each `SORTED_UPDATES` updates' worth, drawn at random, neighbours by length form an update; the updates are then
    put in a random order.
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
