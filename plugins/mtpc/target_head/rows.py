"""Rows of the target's output head, divided among tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.target_head.int8 import Int8Linear, fits_int8


@dataclass(frozen=True)
class Ranks:
    """Tensor-parallel ranks that hold an output head, equally many consecutive rows each.

    Attributes:
        number: This rank's number, from 0.
        count: Number of ranks.
        gather: Concatenates [n, m] of every rank to [n, count * m] on all ranks.
    """

    number: int = 0
    count: int = 1
    gather: Callable[[Tensor], Tensor] = lambda tensor: tensor


SINGLE_RANK = Ranks()
# States up to which int8 is faster than bfloat16 on an AMD EPYC: half the time for 1 row, 0.6 of it for 4.
MAX_INT8_ROWS = 4


class ShardRows(Protocol):
    """Rows of this rank's shard of the output head, which a tensor [V / count, d] has as well."""

    def __len__(self) -> int:
        """Return the number of rows, V / count."""

    def __getitem__(self, numbers: Tensor, /) -> Tensor:
        """Copy rows: int64 [n] -> [n, d]."""


class HeadRows:
    """Rows of the output head; every rank holds and multiplies its share, and all draft from the same gathered logits.

    On a CPU with bfloat16 weights, up to `MAX_INT8_ROWS` states are multiplied by the rows rounded to int8.
    That reads half as many bytes.
    Tokens are drawn from these very logits, so drafting stays lossless.

    Args:
        share: This rank's rows, [m, d].
        size: Rows of all shares together, without the padding of the last ones.
        ranks: Tensor-parallel ranks that hold the head.
    """

    def __init__(self, share: Tensor, size: int, ranks: Ranks = SINGLE_RANK) -> None:
        self.share, self.size, self.ranks = share, size, ranks
        fast = share.device.type == "cpu" and share.dtype == torch.bfloat16 and fits_int8(share)
        self.rounded = Int8Linear(share) if fast else None

    @classmethod
    def of(cls, shard: ShardRows, ids: Tensor, ranks: Ranks = SINGLE_RANK) -> HeadRows:
        """Gather the rows of some tokens from all ranks.

        Args:
            shard: This rank's shard of the head, [V / count, d].
            ids: Tokens, int64 [R]; their rows keep this order, and the first rank gets the first of them.
            ranks: Tensor-parallel ranks that hold the head.  Every rank must call this: each contributes the rows it
                has.

        Returns:
            The rows, copied.
        """
        each, first = -(-len(ids) // ranks.count), ranks.number * len(shard)
        for number, wanted in enumerate(F.pad(ids - first, (0, each * ranks.count - len(ids)), value=-1).split(each)):
            elsewhere = (wanted < 0) | (wanted >= len(shard))
            held = shard[wanted.clamp(0, len(shard) - 1)].masked_fill_(elsewhere[:, None], 0)
            held = (
                ranks.gather(held).unflatten(1, (ranks.count, -1)).sum(1)
            )  # one rank has the row, the others add zeros
            if number == ranks.number:
                share = held
        return cls(share, len(ids), ranks)

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's share."""
        return self.share.nbytes + self.rounded_nbytes

    @property
    def rounded_nbytes(self) -> int:
        """Bytes of the int8 copy of this rank's share, 0 without one."""
        return 0 if self.rounded is None else sum(tensor.nbytes for tensor in self.rounded.buffers())

    def __call__(self, states: Tensor) -> Tensor:
        """Return logits of states [n, d] in their dtype, [n, size]."""
        return self.gathered(self.of_share(states))

    def of_share(self, states: Tensor) -> Tensor:
        """Return logits of this rank's share: [n, d] -> [n, m]."""
        if self.rounded is not None and len(states) <= MAX_INT8_ROWS and states.dtype == torch.bfloat16:
            logits: Tensor = self.rounded(states.contiguous())
            return logits
        return F.linear(states, self.share.to(states.dtype))

    def gathered(self, logits: Tensor) -> Tensor:
        """Gather logits of every rank's share: [n, m] -> [n, size]."""
        return self.ranks.gather(logits)[:, : self.size]
