"""A draft's logits where the drafter has an output head of its own, over some of the target's tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import ALONE, Ranks, Rows
from mtpc.target_head.shared import places


class OwnLogits(DraftLogits):
    """`DraftLogits` of one vocabulary for all requests, from rows that are the drafter's.

    Args:
        rows: Of the head, whole, [R, d]; every rank multiplies its share of them.
        ids: The target's token that each row stands for, ascending, int64 [R].
        vocab_size: V of the target.
        ranks: That share the work.
    """

    def __init__(self, rows: Tensor, ids: Tensor, vocab_size: int, ranks: Ranks = ALONE) -> None:
        each = -(-len(ids) // ranks.count)
        share = F.pad(rows, (0, 0, 0, each * ranks.count - len(ids)))[each * ranks.number :][:each]
        self.vocab_size, self.names, self.whole = vocab_size, ("own",), None
        self.ids, self.rows, self.places = (ids,), (Rows(share, len(ids), ranks),), (places(ids, vocab_size),)

    @property
    def summary(self) -> str:
        """One line for a log: the vocabulary, its size and that of the target's."""
        return f"drafting through its own output head from {len(self.ids[0])} of {self.vocab_size} tokens"
