"""Sampling tokens from explicit distributions with explicit uniform noise."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Up to SHORT_ROW numbers a row is sampled with one cumulative sum, which takes fewer operators; beyond, in blocks.
SHORT_ROW, BLOCK = 1 << 14, 256


def draw(probs: Tensor, uniform: Tensor, temperature: Tensor | float = 1.0) -> Tensor:
    """Draw from categorical distributions by inversion of the cumulative sum.

    The result is the first index whose cumulative sum exceeds ``uniform * total``.
    Sums are float64: with fewer bits the rare tokens of a large vocabulary would be drawn too often or too rarely.
    A parallel cumulative sum need not be monotone, so it could point at an entry of probability zero. Such an entry is
    never returned; the most probable index is taken instead.
    A row longer than `SHORT_ROW` is searched in two levels: first the block, then the index in the block.

    Args:
        probs: Non-negative weights, [..., N]. They need not sum to 1.
        uniform: Uniform noise in [0, 1), [...]. float64 where N is large.
        temperature: [...]. Where it is 0, the most probable index is taken.

    Returns:
        int64 [...], an index for each distribution.
    """
    if probs.shape[-1] <= SHORT_ROW:
        ends = probs.cumsum(-1, dtype=torch.float64)
        index = _first(ends > uniform[..., None] * ends[..., -1:])
        probability = probs.gather(-1, index)
    else:
        block, entries, remainder = _block(probs, uniform)
        inside = _first(entries.cumsum(-1) > remainder)
        index, probability = inside.add(block, alpha=BLOCK), entries.gather(-1, inside)
    return torch.where(probability[..., 0] * temperature > 0, index[..., 0], probs.argmax(-1))


def _block(probs: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the drawn block: its number int64 [..., 1], its entries [..., BLOCK] and the sum to exceed, [..., 1].

    Entries and sum are float64. The last block is padded with zeros.
    """
    size = probs.shape[-1]
    filled = probs.new_empty((*probs.shape[:-1], size + -size % BLOCK), dtype=torch.float64)
    filled[..., :size], filled[..., size:] = probs, 0.0
    blocks = filled.unflatten(-1, (-1, BLOCK))
    sums = blocks.sum(-1)
    ends = sums.cumsum(-1)
    remainder = uniform[..., None] * ends[..., -1:] - (ends - sums)  # the sum to exceed, less all earlier blocks
    block = _first(sums > remainder)
    entries = blocks.gather(-2, block[..., None].expand(*block.shape, BLOCK))[..., 0, :]
    return block, entries, remainder.gather(-1, block)


def _first(flags: Tensor) -> Tensor:
    """Return the index of the first flag that is set, int64 [..., 1]; 0 if none is.

    A view saves a kernel, but torch.compile turns the argmax of a view into 0 on CPUs without AVX-512.
    """
    numbers = flags.to(torch.uint8) if torch.compiler.is_compiling() else flags.view(torch.uint8)
    return numbers.argmax(-1, keepdim=True)


def choose(probs: Tensor, temperature: Tensor | None, uniforms: Tensor | None) -> Tensor:
    """Choose one token from each distribution: the most probable for greedy requests, a drawn one for the others.

    Args:
        probs: [B, V].
        temperature: [B]; 0 is greedy. None where all requests are greedy.
        uniforms: float64 [B], in [0, 1). None where all requests are greedy.

    Returns:
        int64 [B].
    """
    return probs.argmax(-1) if temperature is None or uniforms is None else draw(probs, uniforms, temperature)


def renormalized(weights: Tensor) -> Tensor:
    """Return weights divided by their sum.

    On a CPU a softmax over 150,000 tokens sums to 1 only within 5e-6, and a product of reduced precision within 3e-4.

    Args:
        weights: Non-negative, [..., V].

    Returns:
        Distributions, [..., V].
    """
    return weights / weights.sum(-1, keepdim=True)


def most_probable(logits: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the most probable column of each row, its probability, and the probability of another column.

    Args:
        logits: [n, R].
        columns: int64 [n], the other column of each row, -1 where there is none.

    Returns:
        The most probable column int64 [n], its probability float32 [n], and the other column's probability float32 [n],
        0 where there is none. Probabilities are those of temperature 1.
    """
    probs = logits.softmax(-1, dtype=torch.float32)
    largest = probs.max(-1)
    others = probs.gather(1, columns.clamp_min(0)[:, None])[:, 0]
    return largest.indices, largest.values, torch.where(columns >= 0, others, 0.0)


def draw_tokens(logits: Tensor, temperature: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token of each row from softmax(logits / temperature).

    Args:
        logits: [n, R].
        temperature: [n]. Where it is 0, the token of the largest logit is taken and the probabilities are those of
            temperature 1, which `mtpc.draft.Draft` allows.
        uniforms: float64 [n], in [0, 1).

    Returns:
        Tokens int64 [n], and the probabilities that they were drawn from, float32 [n, R].
    """
    probs = at_temperature(logits, temperature)
    return draw(probs, uniforms, temperature), probs


class MixedDraw(NamedTuple):
    """Draws from distributions in which one column has an extra weight, see `draw_mixed`.

    Attributes:
        columns: int64 [n], the drawn columns; R stands for a column without a logit.
        probs: float32 [n, R + 1], the distributions that they were drawn from.
        drafter_probs: float32 [n], the probability of the weighted column under the logits alone.
    """

    columns: Tensor
    probs: Tensor
    drafter_probs: Tensor


def draw_mixed(logits: Tensor, temperature: Tensor, uniforms: Tensor, columns: Tensor, weights: Tensor) -> MixedDraw:
    """Draw one token of each row from (1 - w) softmax(logits / temperature) + w 1[column].

    Args:
        logits: [n, R].
        temperature: [n], see `draw_tokens`.
        uniforms: float64 [n], in [0, 1).
        columns: int64 [n], the weighted column of each row, -1 for one that has no logit.
        weights: float32 [n], w in [0, 1].

    Returns:
        The draws and their distributions.
    """
    drafter, has_logit = at_temperature(logits, temperature), columns >= 0
    drafter_probs = torch.where(has_logit, drafter.gather(1, columns.clamp_min(0)[:, None])[:, 0], 0.0)
    probs = F.pad((1.0 - weights)[:, None] * drafter, (0, 1))
    probs.scatter_add_(1, torch.where(has_logit, columns, logits.shape[1])[:, None], weights[:, None])
    return MixedDraw(draw(probs, uniforms, temperature), probs, drafter_probs)


def at_temperature(logits: Tensor, temperature: Tensor | None) -> Tensor:
    """Return softmax(logits / temperature).

    Args:
        logits: [n, R].
        temperature: [n]; 0, or None for all rows, counts as 1.

    Returns:
        float32 [n, R].
    """
    if temperature is not None:
        logits = logits / torch.where(temperature == 0, 1.0, temperature)[:, None]
    return renormalized(logits.softmax(-1, dtype=torch.float32))
