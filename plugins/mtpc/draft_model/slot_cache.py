"""Keys and values of requests in slots, and the attention of a packed batch over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Span(NamedTuple):
    """Consecutive new tokens of one request.

    Attributes:
        slot: The request's slot.
        start: Position of the first token.
        tokens: n token ids, at least one.
    """

    slot: int
    start: int
    tokens: Sequence[int]


class PackedBatch:
    """The new tokens of several requests, one after the other in a single sequence of T tokens without padding.

    Attributes:
        spans: The requests' new tokens.
        tokens: int64 [1, T].
        positions: int64 [1, T], the position of each token in its request.
        slots: int64 [T], the slot of each token.
        masks: One for each span of n tokens that ends before position L, [1, 1, groups * n, L]: 0 where a token
            attends, -inf at later positions. None for a span of one token, which attends to all L.

    Args:
        spans: The requests' new tokens, each request once.
        groups: Query heads per key head.
        dtype: Dtype of the masks.
        device: Device of all tensors.
    """

    def __init__(self, spans: Sequence[Span], groups: int, dtype: torch.dtype, device: torch.device) -> None:
        self.spans = spans
        rows = [
            (token, position, span.slot) for span in spans for position, token in enumerate(span.tokens, span.start)
        ]
        columns = torch.tensor(rows, device=device).T  # [3, T]
        self.tokens, self.positions, self.slots = columns[:1], columns[1:2], columns[2]
        self.masks = [
            None if len(span.tokens) == 1 else _causal_mask(len(span.tokens), span.start, groups, dtype, device)
            for span in spans
        ]


def _causal_mask(size: int, start: int, groups: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the mask of one span."""
    mask = torch.full((size, start + size), float("-inf"), dtype=dtype, device=device).triu(start + 1)
    return mask.repeat(groups, 1)[None, None]


class SlotCache:
    """Keys and values of every layer, with a fixed number of positions per slot.

    A slot is valid up to the end of the last span that was added to it. `attend` only reads a view that ends there,
    so neither NaN nor anything else behind it can reach a result. A request is rolled back by adding a span at an
    earlier position.

    Attributes:
        keys: [layers, slots, key heads, context, head size].
        values: As the keys.

    Args:
        shape: These five sizes.
        dtype: Dtype of keys and values.
        device: Device of keys and values.
    """

    def __init__(self, shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None, batch: PackedBatch
    ) -> Tensor:
        """Add keys and values of one layer, and return the attention of each token over its request.

        The query heads that share a key head are attended as further tokens of this head, and a request's keys are a
        view of its slot. So keys and values are not copied: on a CPU this takes a ninth of the time of repeating them.

        Args:
            layer: Index of the layer.
            query: [1, heads, T, head size].
            key: [1, key heads, T, head size].
            value: As the keys.
            scale: Factor of the scores. None: 1 / sqrt(head size).
            batch: The T tokens.

        Returns:
            [1, T, heads, head size].
        """
        keys, values, positions = self.keys[layer], self.values[layer], batch.positions[0]
        keys[batch.slots, :, positions] = key[0].transpose(0, 1)
        values[batch.slots, :, positions] = value[0].transpose(0, 1)
        queries = query[0].split([len(span.tokens) for span in batch.spans], 1)  # [heads, n, head size] each
        attended = []
        for span, mask, one in zip(batch.spans, batch.masks, queries, strict=True):
            end = span.start + len(span.tokens)
            grouped = scaled_dot_product_attention(
                one.reshape(1, keys.shape[1], -1, one.shape[-1]),  # [1, key heads, groups * n, head size]
                keys[span.slot, None, :, :end],
                values[span.slot, None, :, :end],
                attn_mask=mask,
                scale=scale,
            )
            attended.append(grouped.reshape(one.shape))
        return torch.cat(attended, 1).transpose(0, 1)[None]
