"""Drawing from stated distributions."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows of up to SINGLE numbers are summed one after the other, which takes fewer operators; longer ones in blocks.
SHORT_ROW, BLOCK = 1 << 14, 256


def draw(probs: Tensor, uniform: Tensor, temperature: Tensor | float = 1.0) -> Tensor:
    """Categorical draws by inversion of the cumulative distribution; the most probable where the temperature is 0.

    The draw is the first index whose cumulative sum exceeds ``uniform * total``, in double precision: with fewer bits
    the rare tokens of a large vocabulary would not be drawn as often as is said.  An entry of probability zero is never
    drawn: sums made in parallel need not be monotone, and where they lead to one, the most probable is taken.  In a
    long row the block is found first, from the sums of all blocks, then the index in it.

    probs: [..., N], not necessarily normalised; uniform: [...], in [0, 1), float64 too where N is large; temperature:
    [...] -> int64 [...].
    """
    if probs.shape[-1] <= SHORT_ROW:
        ends = probs.cumsum(-1, dtype=torch.float64)
        index = _first(ends > uniform[..., None] * ends[..., -1:])
        chance = probs.gather(-1, index)
    else:
        block, entries, left = _block(probs, uniform)
        inside = _first(entries.cumsum(-1) > left)
        index, chance = inside.add(block, alpha=BLOCK), entries.gather(-1, inside)
    return torch.where(chance[..., 0] * temperature > 0, index[..., 0], probs.argmax(-1))


def _block(probs: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The block that is drawn: its number, int64 [..., 1], its entries, [..., BLOCK], and the sum to exceed, [..., 1].

    Both float64; the last block is filled up with zeros.
    """
    size = probs.shape[-1]
    filled = probs.new_empty((*probs.shape[:-1], size + -size % BLOCK), dtype=torch.float64)
    filled[..., :size], filled[..., size:] = probs, 0.0
    blocks = filled.unflatten(-1, (-1, BLOCK))
    sums = blocks.sum(-1)
    ends = sums.cumsum(-1)
    left = uniform[..., None] * ends[..., -1:] - (ends - sums)  # of the sum to exceed, after all earlier blocks
    block = _first(sums > left)
    entries = blocks.gather(-2, block[..., None].expand(*block.shape, BLOCK))[..., 0, :]
    return block, entries, left.gather(-1, block)


def _first(flags: Tensor) -> Tensor:
    """The index of the first that is set, int64 [..., 1], 0 if none is.

    A view is one kernel less, but of one torch.compile makes an argmax of 0 on CPUs without AVX-512.
    """
    numbers = flags.to(torch.uint8) if torch.compiler.is_compiling() else flags.view(torch.uint8)
    return numbers.argmax(-1, keepdim=True)


def choose(probs: Tensor, temperature: Tensor | None, uniforms: Tensor | None) -> Tensor:
    """A token of each distribution, int64 [B]: its most probable in the rows of greedy requests, drawn in the others.

    probs: [B, V].  temperature: [B], and uniforms: float64 [B], in [0, 1); None where all requests are greedy.
    """
    return probs.argmax(-1) if temperature is None or uniforms is None else draw(probs, uniforms, temperature)


def renormalized(weights: Tensor) -> Tensor:
    """Weights [..., V] as a distribution: what a softmax over 150,000 tokens makes on a CPU sums to 1 but for 5e-6, and
    what a product of reduced precision makes of such, but for 3e-4.
    """
    return weights / weights.sum(-1, keepdim=True)


def most_probable(logits: Tensor, columns: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The column of the largest logit of each row, int64 [n], its probability, and that of a column that is asked for.

    logits: [n, R].  columns: int64 [n], -1 for one that is not there; None: none is.  Probabilities: float32 [n], of
    temperature 1.
    """
    probs = logits.softmax(-1, dtype=torch.float32)
    largest = probs.max(-1)
    if columns is None:
        return largest.indices, largest.values, torch.zeros_like(largest.values)
    asked = probs.gather(1, columns.clamp_min(0)[:, None])[:, 0]
    return largest.indices, largest.values, torch.where(columns >= 0, asked, 0.0)


def draw_tokens(logits: Tensor, temperature: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draws from softmax(logits / temperature), int64 [n], and these probabilities, float32 [n, R].

    logits: [n, R].  temperature: [n]; where it is 0, the token of the largest logit is taken, and the probabilities
    are those of temperature 1: see `mtpc.draft.Draft`.  uniforms: float64 [n], in [0, 1).
    """
    probs = at_temperature(logits, temperature)
    return draw(probs, uniforms, temperature), probs


class MixedDraw(NamedTuple):
    """A draw of each row from a distribution in which one column has a weight of its own, see `draw_mixed`.

    columns: int64 [n], that were drawn, R for one that has no logit.  probs: float32 [n, R + 1], that they were drawn
    from.  likely: float32 [n], of the column with a weight, in the distribution without.
    """

    columns: Tensor
    probs: Tensor
    drafter_probs: Tensor


def draw_mixed(logits: Tensor, temperature: Tensor, uniforms: Tensor, columns: Tensor, weights: Tensor) -> MixedDraw:
    """Draws from (1 - w) softmax(logits / temperature) + w 1[column].

    logits, temperature, uniforms: as of `draw_tokens`.  columns: int64 [n], -1 for one that has no logit.  weights:
    float32 [n].
    """
    own, known = at_temperature(logits, temperature), columns >= 0
    drafter_probs = torch.where(known, own.gather(1, columns.clamp_min(0)[:, None])[:, 0], 0.0)
    probs = F.pad((1.0 - weights)[:, None] * own, (0, 1))
    probs.scatter_add_(1, torch.where(known, columns, logits.shape[1])[:, None], weights[:, None])
    return MixedDraw(draw(probs, uniforms, temperature), probs, drafter_probs)


def at_temperature(logits: Tensor, temperature: Tensor | None) -> Tensor:
    """softmax(logits / temperature), float32 [n, R]; temperature: [n], None or 0 for 1."""
    if temperature is not None:
        logits = logits / torch.where(temperature == 0, 1.0, temperature)[:, None]
    return renormalized(logits.softmax(-1, dtype=torch.float32))
