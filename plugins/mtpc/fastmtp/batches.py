"""Training batches: whole conversations, of whose answers every position is an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtpc.distill.conversations import Conversation


class Batch(NamedTuple):
    """tokens: int64 [B, L], padded on the right; chosen: bool [B, L - K - 1], the starts whose drafts are answer."""

    tokens: Tensor
    chosen: Tensor


def collate(conversations: Sequence[Conversation], steps: int, context: int) -> Batch:
    """A batch of the first ``context`` tokens of each conversation.

    A draft that starts at i follows t_{i+1}, the target's own token, which is in the answer from i = start - 1 on.
    """
    rows = [conversation.tokens[:context] for conversation in conversations]
    length = max(steps + 2, *(len(row) for row in rows))
    tokens = torch.zeros(len(rows), length, dtype=torch.int64)
    chosen = torch.zeros(len(rows), length - steps - 1, dtype=torch.bool)
    for i, (row, conversation) in enumerate(zip(rows, conversations, strict=True)):
        tokens[i, : len(row)] = torch.tensor(row)
        chosen[i, conversation.start - 1 : max(0, len(row) - steps - 1)] = True
    return Batch(tokens, chosen)


def epoch_order(count: int, epoch: int, seed: int) -> list[int]:
    """The order of the conversations in an epoch: a function of the seed."""
    return np.random.default_rng((seed, epoch)).permutation(count).tolist()
