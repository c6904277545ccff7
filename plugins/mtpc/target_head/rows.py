"""Rows of the target's output head, divided among tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.target_head.int8 import Int8Linear, fits


@dataclass(frozen=True)
class Ranks:
    """The ranks that hold an output head, each as many of its rows, one rank after the other.

    number: this rank's, of ``count``.  gather: [n, m] of every rank -> [n, count * m], side by side on all ranks.
    """

    number: int = 0
    count: int = 1
    gather: Callable[[Tensor], Tensor] = lambda tensor: tensor


ALONE = Ranks()
PLAIN = (torch.float32, torch.bfloat16, torch.float16)  # FP8 is not: its numbers need their scales
FEW = 4  # rows of states that read int8 faster than bfloat16, on an AMD EPYC: half the time for one, 0.6 for four


def plain_weight(head: Any, hidden_size: int | None = None) -> Tensor | None:
    """Return the weight [V, d] of an output head whose rows are logits' factors as they are, None of a quantized head.

    head: an engine's module; None: there is none.  hidden_size: d; None: any.
    """
    weight = getattr(head, "weight", None)
    if weight is None or weight.dtype not in PLAIN or hidden_size not in (None, weight.shape[-1]):
        return None
    found: Tensor = weight.data
    return found


class Rows:
    """Rows of the head, of which every rank holds and multiplies its share: all draft from the same gathered logits.

    On a CPU that computes in bfloat16, up to `FEW` rows of states read the head's rows rounded to int8: half as many
    bytes, and drafts from just these logits.

    share: [m, d].  size: of all ranks' shares together, without the rows that fill up the last ones.
    """

    def __init__(self, share: Tensor, size: int, ranks: Ranks = ALONE) -> None:
        self.share, self.size, self.ranks = share, size, ranks
        fast = share.device.type == "cpu" and share.dtype == torch.bfloat16 and fits(share)
        self.rounded = Int8Linear(share) if fast else None

    @classmethod
    def of(cls, shard: Tensor, ids: Tensor, ranks: Ranks = ALONE) -> Rows:
        """Those of the tokens ``ids``, int64 [R], in their order: copies, the first of them for the first rank.

        shard: of the head, this rank's, [V / count, d].  Every rank contributes the rows that it has; in between there
        are as many rows as tokens.
        """
        each, first = -(-len(ids) // ranks.count), ranks.number * len(shard)
        for number, wanted in enumerate(F.pad(ids - first, (0, each * ranks.count - len(ids)), value=-1).split(each)):
            elsewhere = (wanted < 0) | (wanted >= len(shard))
            held = shard[wanted.clamp(0, len(shard) - 1)].masked_fill_(elsewhere[:, None], 0)
            held = ranks.gather(held).unflatten(1, (ranks.count, -1)).sum(1)  # all but one of them are zeros
            if number == ranks.number:
                share = held
        return cls(share, len(ids), ranks)

    @property
    def nbytes(self) -> int:
        """Of this rank's share."""
        return self.share.nbytes + self.rounded_nbytes

    @property
    def rounded_nbytes(self) -> int:
        """Of what is rounded of this rank's share, 0 if nothing is."""
        return 0 if self.rounded is None else sum(tensor.nbytes for tensor in self.rounded.buffers())

    def __call__(self, states: Tensor) -> Tensor:
        """Their logits: states [n, d] -> [n, size], in their type."""
        return self.gathered(self.of_share(states))

    def of_share(self, states: Tensor) -> Tensor:
        """Logits of this rank's share: [n, d] -> [n, m]."""
        if self.rounded is not None and len(states) <= FEW and states.dtype == torch.bfloat16:
            logits: Tensor = self.rounded(states.contiguous())
            return logits
        return F.linear(states, self.share.to(states.dtype))

    def gathered(self, logits: Tensor) -> Tensor:
        """Logits of every rank's share, [n, m]: [n, size]."""
        return self.ranks.gather(logits)[:, : self.size]
