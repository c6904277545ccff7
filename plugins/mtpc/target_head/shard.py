"""One rank's shard of the target's output head in an engine: a weight, or a quantized layer.

The layout of a quantized weight need not be known.  The layer's product with unit vectors is the dequantized weight,
column by column, because activations that are quantized with a scale of their own represent unit vectors exactly.
Negative ones: oneDNN adds 128 to 8-bit activations, and without VNNI its sums of two products then overflow 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.target_head.rows import HeadRows, Ranks

UNQUANTIZED = (torch.float32, torch.bfloat16, torch.float16)  # FP8 is not one: its numbers need their scales
UNITS = 128  # unit vectors at once: [UNITS, V / count] logits; for more, some kernels dequantize the whole head
PROBES = 8
# Relative error of logits up to which rows are those of the head: 8-bit activations cause about 0.03, 4-bit ones 0.1.
# With a wrong scale, as where a fixed activation scale cuts unit vectors off, it is larger.
MAX_ERROR = 0.2


class QuantizedShard:
    """This rank's rows of a quantized output head, [V / count, d], used through the layer's product with states.

    Args:
        layer: Output head module of an engine, with a ``quant_method``.
        hidden_size: d.
        dtype: Dtype of the states.
    """

    def __init__(self, layer: Any, hidden_size: int, dtype: torch.dtype) -> None:
        self.layer = layer
        self.device = next(tensor.device for tensor in (*layer.parameters(), *layer.buffers()))
        self.empty = torch.empty(0, hidden_size, dtype=dtype, device=self.device)
        self.size = self(self.empty.new_zeros(1, hidden_size)).shape[1]

    def __len__(self) -> int:
        """Return the number of rows, V / count."""
        return self.size

    @torch.no_grad()
    def __call__(self, states: Tensor) -> Tensor:
        """Return logits of this shard in the dtype of the states: [n, d] -> [n, V / count]."""
        logits: Tensor = self.layer.quant_method.apply(self.layer, states.to(self.empty.dtype), None)
        return logits.to(states.dtype)

    def dequantized(self, tokens: Tensor, ranks: Ranks) -> DequantizedRows:
        """Dequantize the rows of some tokens, as far as this rank has them.

        Args:
            tokens: int64 [n].
            ranks: Tensor-parallel ranks that hold the head.

        Raises:
            MTPCError: The rows do not reproduce the layer's logits.
        """
        wanted = (tokens - ranks.number * self.size).unique()
        wanted = wanted[(wanted >= 0) & (wanted < self.size)]
        width = self.empty.shape[1]
        rows = self.empty.new_empty(len(wanted), width)
        for first in range(0, width, UNITS):
            count = min(UNITS, width - first)
            units = F.pad(-torch.eye(count, dtype=rows.dtype, device=self.device), (first, width - first - count))
            rows[:, first : first + count] = -self(units)[:, wanted].T
        self._check(rows, wanted)
        return DequantizedRows(rows, wanted, self.size)

    def _check(self, rows: Tensor, wanted: Tensor) -> None:
        """Raise `MTPCError` unless the rows reproduce the layer's logits of random states."""
        states = torch.randn(PROBES, rows.shape[1], generator=torch.Generator().manual_seed(0)).to(rows)
        expected = self(states)[:, wanted].float()
        error, limit = (states.float() @ rows.float().T - expected).norm(), MAX_ERROR * expected.norm()
        if not error <= limit:  # also where either is not a number
            method = type(self.layer.quant_method).__name__
            raise MTPCError(
                f"a draft vocabulary cannot read the rows of an output head with {method}, whose logits are not linear "
                f"in the states: set its language to 'none'."
            )


class DequantizedRows:
    """Some rows of a quantized shard, by their number in it; all others are zeros.

    Args:
        rows: [m, d].
        numbers: Their numbers in the shard, int64 [m].
        size: Rows of the shard.
    """

    def __init__(self, rows: Tensor, numbers: Tensor, size: int) -> None:
        self.rows = F.pad(rows, (0, 0, 0, 1))
        self.index = numbers.new_full((size,), len(rows))  # of the zeros
        self.index[numbers] = torch.arange(len(rows), device=numbers.device)

    def __len__(self) -> int:
        """Return the number of rows of the shard."""
        return len(self.index)

    def __getitem__(self, numbers: Tensor) -> Tensor:
        """Copy rows: int64 [n] -> [n, d]."""
        return self.rows[self.index[numbers]]


def head_shard(head: Any, dtype: torch.dtype, hidden_size: int | None = None) -> Tensor | QuantizedShard | None:
    """Return this rank's shard of an output head, [V / count, d]; None where there is none.

    Args:
        head: Output head module of an engine; None: there is none.
        dtype: Dtype of the states.
        hidden_size: d that the head must have; None: any.
    """
    weight = getattr(head, "weight", None)
    if weight is not None and weight.dtype in UNQUANTIZED:
        found: Tensor = weight.data
        return found if hidden_size in (None, found.shape[-1]) else None
    width = getattr(head, "embedding_dim", None)
    if width is None or hidden_size not in (None, width) or getattr(head, "quant_method", None) is None:
        return None
    return QuantizedShard(head, width, dtype)


def whole_head(shard: Tensor | QuantizedShard, vocab_size: int, ranks: Ranks) -> Callable[[Tensor], Tensor]:
    """Return the product of states with all rows, [n, d] -> [n, V].

    Args:
        shard: This rank's shard of the head.
        vocab_size: V.
        ranks: Tensor-parallel ranks that hold the head.
    """
    if isinstance(shard, Tensor):
        return HeadRows(shard, vocab_size, ranks)
    return lambda states: ranks.gather(shard(states))[:, :vocab_size]
