"""Logits where shapes are static: all draft vocabularies' rows as one, of which few requests read their own alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import ALONE, Ranks
from mtpc.vocabulary.vocabularies import DraftVocabularies

FEW = 16  # rows of states with vocabularies of their own: a kernel's tile, and more of them have most languages


class UnionLogits(DraftLogits):
    """A row for every token of any draft vocabulary, once; nothing asks for a value on the device.

    Many rows of states are multiplied with all of it, and draft from all of it: what was computed for one request costs
    the others nothing.  Few draft from vocabularies of their own, and read on a GPU what these hold and no more.

    vocabularies: all of them together are fewer than all tokens; that one is drafted from by requests without language.
    """

    def __init__(self, vocabularies: DraftVocabularies, shard: Tensor, ranks: Ranks = ALONE) -> None:
        together = vocabularies.together()
        assert together is not None
        held = torch.stack([torch.isin(together.ids[0], ids) for ids in vocabularies.ids])  # bool [L, R]
        order = shared_out(held, ranks.count)
        together.ids = (together.ids[0][order],)
        super().__init__(together, shard, ranks=ranks)
        (rows,), each = self.rows, len(self.rows[0].share)
        held = F.pad(held[:, order], (0, each * ranks.count - rows.size))
        self.held = held[:, ranks.number * each :][:, :each].contiguous().to(shard.device)  # of this rank's share

    def __call__(self, states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Logits [n, V] of states [n, d], in their type.

        numbers: int64 [n], of each row's draft vocabulary, on the device; None: all of them together.
        """
        if numbers is None or len(states) > FEW:
            return super().__call__(states)
        (rows,) = self.rows
        of_own = logits_of_own
        if states.is_cuda and states.dtype == rows.share.dtype:
            from mtpc.target_head.kernel import logits_of_own as of_own
        logits = rows.gathered(of_own(states, rows.share, self.held, numbers))
        return states.new_full((len(states), self.vocab_size), -torch.inf).index_copy_(1, self.ids[0], logits)


def logits_of_own(states: Tensor, rows: Tensor, held: Tensor, numbers: Tensor) -> Tensor:
    """Logits [n, m] of states [n, d] with rows [m, d], -inf for a token that is not in the vocabulary of its row.

    held: bool [L, m], which vocabulary holds which row's token.  numbers: int64 [n], of the vocabularies.
    """
    return F.linear(states, rows.to(states.dtype)).masked_fill(~held[numbers], -torch.inf)


def shared_out(held: Tensor, count: int) -> Tensor:
    """An order of tokens, int64 [R], in which every rank's part has as many of each vocabulary, but for a few.

    Tokens of the same vocabularies lie together, so that what reads them in blocks reads few others.
    held: bool [L, R], which vocabulary holds which token.  count: of the ranks.
    """
    alike = held.T.unique(dim=0, return_inverse=True)[1].argsort(stable=True)
    return torch.cat([alike[rank::count] for rank in range(count)])
