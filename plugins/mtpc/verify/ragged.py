"""`mtpc.verify.rejection` for drafts of many lengths; a distribution is only made whole where a draft is rejected.

Of all other drafts the target's probability is enough, which takes one pass over its logits: on a CPU a large
vocabulary's distributions, and random numbers for all its tokens, take longer than everything else here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from mtpc.draw import draw
from mtpc.verify.verdict import residual


def verify_ragged(
    drafts: Tensor,
    lengths: Sequence[int],
    draft: Tensor | None,
    logits: Tensor,
    accept_uniforms: Tensor,
    last_uniforms: Tensor,
) -> tuple[list[int], list[int | None]]:
    """How many drafts of each request are accepted, and the token after them; None: the bonus token, all are.

    drafts: int64 [T], those of B requests after each other.  lengths: B, how many each has.  draft: probabilities
    [T, V] that they were drawn from; None: they are certain.  logits: the target's [T, V], which its distributions are
    the softmax of.  accept_uniforms [T] and last_uniforms [B]: float64, in [0, 1).
    """
    places = drafts[:, None]
    total = logits.logsumexp(-1, keepdim=True)
    wanted = (logits.gather(1, places) - total).exp()[:, 0]
    stated = 1.0 if draft is None else draft.gather(1, places)[:, 0]
    right = (accept_uniforms * stated < wanted).tolist()
    accepted, rejected = [], {}  # of each request; and by request, where the draft that was rejected stands
    for row, (end, length) in enumerate(zip(accumulate(lengths), lengths, strict=True)):
        kept = _leading(right[end - length : end])
        accepted.append(kept)
        if kept < length:
            rejected[row] = end - length + kept
    last: list[int | None] = [None] * len(lengths)
    if rejected:
        at = torch.tensor(list(rejected.values()), device=logits.device)
        target = (logits[at] - total[at]).exp()
        taken = torch.zeros_like(target).scatter_(1, places[at], 1.0) if draft is None else draft[at]
        recovered = draw(residual(target, taken), last_uniforms[list(rejected)])
        for row, token in zip(rejected, recovered.tolist(), strict=True):
            last[row] = token
    return accepted, last


def _leading(flags: list[bool]) -> int:
    """How many are set before the first that is not."""
    return flags.index(False) if False in flags else len(flags)
