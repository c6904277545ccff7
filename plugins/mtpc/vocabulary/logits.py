"""A draft's logits where every request of a batch drafts from a vocabulary of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.vocabulary.heads import DraftVocabularies


class DraftLogits:
    """The output head's rows of every draft vocabulary, and logits over the whole vocabulary made of them.

    A token that cannot be drafted has the logit -inf, hence the probability 0 in the distribution that the drafts are
    drawn from and that the verifier sees: lossless at any temperature.

    unembedding: the target's output head, [V, d]; it is not kept, only rows of it are.  static: whether shapes must be
    the same for all batches of a size, and the maps unknown to the host, as in a CUDA graph.
    """

    def __init__(self, vocabularies: DraftVocabularies, unembedding: Tensor, static: bool = False) -> None:
        self.vocab_size, self.static = len(unembedding), static
        self.names = vocabularies.names
        self.ids = tuple(ids.to(unembedding.device) for ids in vocabularies.ids)  # int64 [R] of each map
        self.rows = vocabularies.gather(unembedding)  # [R, d] of each map

    @property
    def summary(self) -> str:
        """One line for a log: the maps, their sizes and the memory of their rows."""
        maps = ", ".join(f"{name} ({len(ids)} tokens)" for name, ids in zip(self.names, self.ids, strict=True))
        memory = sum(rows.nbytes for rows in self.rows)
        return f"drafting from {maps} of {self.vocab_size} tokens; the head's rows of them take {memory / 1e6:.1f} MB"

    def __call__(self, states: Tensor, maps: Tensor | None = None) -> Tensor:
        """Logits [n, V] of states [n, d], in their type.

        maps: int64 [n], the number of each row's map; None: the first for all.  Where shapes are static, it is on the
        device of the states; every map is computed for every row, and each row keeps its own.  Otherwise it is best on
        the CPU, where it groups the rows without asking the device: only the maps in use are computed, for their rows.
        """
        whole = states.new_full((len(states), self.vocab_size), -torch.inf)
        if maps is None or len(self.ids) == 1:
            return whole.index_copy_(1, self.ids[0], self._of(0, states))
        if self.static:
            for number, ids in enumerate(self.ids):
                own = (maps == number)[:, None]
                whole.index_copy_(1, ids, torch.where(own, self._of(number, states), whole[:, ids]))
            return whole
        for number in maps.unique().tolist():
            rows = (maps == number).nonzero()[:, 0].to(states.device)
            whole[rows[:, None], self.ids[number]] = self._of(number, states[rows])
        return whole

    def _of(self, number: int, states: Tensor) -> Tensor:
        """Logits of one map: [m, d] -> [m, R]."""
        return F.linear(states, self.rows[number].to(states.dtype))
