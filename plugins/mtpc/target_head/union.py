"""Draft logits for CUDA graphs: the rows of all draft vocabularies as one set of static shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import SINGLE_RANK, Ranks
from mtpc.target_head.shard import QuantizedShard
from mtpc.vocabulary.vocabularies import DraftVocabularies

# States up to which each drafts from its own vocabulary: the kernel's tile.  Larger batches contain most languages.
MAX_KERNEL_ROWS = 16


class UnionLogits(DraftLogits):
    """The union vocabulary's rows, each once; no method reads a value from the device.

    More than `MAX_KERNEL_ROWS` states are multiplied by all rows and draft from the union vocabulary.
    Fewer draft from the vocabularies of their requests; on a GPU a kernel reads only the rows of these.

    Args:
        vocabularies: Draft vocabularies whose union has fewer tokens than the target.
        shard: This rank's shard of the target's output head, [V / count, d].
        ranks: Tensor-parallel ranks that hold the head.

    Raises:
        MTPCError: See `DraftLogits`.
    """

    def __init__(
        self, vocabularies: DraftVocabularies, shard: Tensor | QuantizedShard, ranks: Ranks = SINGLE_RANK
    ) -> None:
        union = vocabularies.union()
        assert union is not None
        held = torch.stack([torch.isin(union.ids[0], ids) for ids in vocabularies.ids])  # bool [L, R]
        order = balanced_order(held, ranks.count)
        union.ids = (union.ids[0][order],)
        super().__init__(union, shard, ranks=ranks)
        (rows,), each = self.rows, len(self.rows[0].share)
        held = F.pad(held[:, order], (0, each * ranks.count - rows.size))
        self.held = held[:, ranks.number * each :][:, :each].contiguous().to(shard.device)  # of this rank's share

    def __call__(self, states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return logits over the whole vocabulary, [n, V], in the dtype of the states.

        Args:
            states: Hidden states, [n, d].
            numbers: Draft vocabulary of each row, int64 [n] on the device; None: the union vocabulary.
        """
        if numbers is None or len(states) > MAX_KERNEL_ROWS:
            return super().__call__(states)
        (rows,) = self.rows
        compute = logits_by_vocabulary
        if states.is_cuda and states.dtype == rows.share.dtype:
            from mtpc.target_head.kernel import logits_by_vocabulary as compute
        logits = rows.gathered(compute(states, rows.share, self.held, numbers))
        return states.new_full((len(states), self.vocab_size), -torch.inf).index_copy_(1, self.ids[0], logits)


def logits_by_vocabulary(states: Tensor, rows: Tensor, held: Tensor, numbers: Tensor) -> Tensor:
    """Return logits [n, m], -inf for a token outside the draft vocabulary of its row.

    Args:
        states: Hidden states, [n, d].
        rows: Output head rows, [m, d].
        held: Which vocabulary contains the token of which row, bool [L, m].
        numbers: Draft vocabulary of each state, int64 [n].
    """
    return F.linear(states, rows.to(states.dtype)).masked_fill(~held[numbers], -torch.inf)


def balanced_order(held: Tensor, count: int) -> Tensor:
    """Return an order of tokens, int64 [R], that gives every rank about equally many tokens of each vocabulary.

    Tokens of the same vocabularies are adjacent, so a kernel that reads blocks of rows reads few that it does not need.

    Args:
        held: Which vocabulary contains which token, bool [L, R].
        count: Number of ranks.
    """
    alike = held.T.unique(dim=0, return_inverse=True)[1].argsort(stable=True)
    return torch.cat([alike[rank::count] for rank in range(count)])
