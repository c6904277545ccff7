"""Draft logits where the drafter has its own output head over some of the target's tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import SINGLE_RANK, HeadRows, Ranks
from mtpc.target_head.shared import index_by_token


class DrafterHeadLogits(DraftLogits):
    """`DraftLogits` of one vocabulary for all requests, from rows that the drafter brings.

    Args:
        rows: The whole head, [R, d]; every rank multiplies its share.
        ids: Token of the target that each row stands for, ascending, int64 [R].
        vocab_size: V of the target.
        ranks: Tensor-parallel ranks that share the work.
    """

    def __init__(self, rows: Tensor, ids: Tensor, vocab_size: int, ranks: Ranks = SINGLE_RANK) -> None:
        each = -(-len(ids) // ranks.count)
        share = F.pad(rows, (0, 0, 0, each * ranks.count - len(ids)))[each * ranks.number :][:each]
        self.vocab_size, self.names, self.whole = vocab_size, ("own",), None
        self.ids, self.rows, self.index_by_token = (
            (ids,),
            (HeadRows(share, len(ids), ranks),),
            (index_by_token(ids, vocab_size),),
        )

    @property
    def summary(self) -> str:
        """One log line: the sizes of the draft vocabulary and of the target's vocabulary."""
        return f"drafting through its own output head from {len(self.ids[0])} of {self.vocab_size} tokens"
