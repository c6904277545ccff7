"""Drawing from stated distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.draft import Mode


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """Categorical draws by inversion of the cumulative distribution.

    The draw is the first index whose cumulative sum exceeds ``uniform * total``, so an entry of probability
    zero is never drawn, not even for a uniform of 0 or just below 1.  It sums in double precision: with fewer bits the
    rare tokens of a large vocabulary would not be drawn as often as is said.

    probs: [..., N], not necessarily normalised; uniform: [...], in [0, 1), float64 too where N is large -> int64 [...].
    """
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    total = cumulative[..., -1:]
    index = (cumulative <= uniform[..., None].to(cumulative.dtype) * total).sum(-1)
    return index.minimum((cumulative < total).sum(-1))  # should the product have rounded up to the total


def choose(probs: Tensor, temperature: Tensor | None, uniforms: Tensor | None, mode: Mode) -> Tensor:
    """A token of each distribution, int64 [B]: its most probable in the rows of greedy requests, drawn in the others.

    probs: [B, V].  temperature: [B], and uniforms: float64 [B], in [0, 1); both may be None in the mode "greedy".
    """
    if mode == "greedy":
        return probs.argmax(-1)
    assert temperature is not None and uniforms is not None  # part of the contract of the other modes
    drawn = draw(probs, uniforms)
    return drawn if mode == "sampled" else torch.where(temperature <= 0, probs.argmax(-1), drawn)


def most_probable(logits: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The column of the largest logit of each row, int64 [n], its probability, and that of a column that is asked for.

    logits: [n, R].  columns: int64 [n], -1 for one that is not there.  Probabilities: float32 [n], of temperature 1.
    """
    probs = logits.softmax(-1, dtype=torch.float32)
    largest = probs.max(-1)
    asked = probs.gather(1, columns.clamp_min(0)[:, None])[:, 0]
    return largest.indices, largest.values, torch.where(columns >= 0, asked, 0.0)


def draw_tokens(logits: Tensor, temperature: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draws from softmax(logits / temperature), int64 [n], and these probabilities, float32 [n, R].

    logits: [n, R].  temperature: [n]; where it is 0, the token of the largest logit is taken, and the probabilities
    are those of temperature 1: see `mtpc.draft.Draft`.  uniforms: float64 [n], in [0, 1).
    """
    probs = at_temperature(logits, temperature)
    return torch.where(temperature == 0, logits.argmax(-1), draw(probs, uniforms)), probs


def at_temperature(logits: Tensor, temperature: Tensor | None) -> Tensor:
    """softmax(logits / temperature), float32 [n, R]; temperature: [n], None or 0 for 1."""
    if temperature is not None:
        logits = logits / torch.where(temperature == 0, 1.0, temperature)[:, None]
    return logits.softmax(-1, dtype=torch.float32)
