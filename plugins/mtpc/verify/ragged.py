"""`mtpc.verify.greedy` and `mtpc.verify.rejection` for drafts of many lengths, on the host.

Only of the token after a request's accepted drafts a distribution is needed: on a CPU random numbers for all tokens of
a large vocabulary, after every draft, take longer than everything else here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import eq

import torch
from torch import Tensor

from mtpc.draw import draw
from mtpc.verify.verdict import residual


def verify_greedy_ragged(drafts: Sequence[int], lengths: Sequence[int], likeliest: Sequence[int]) -> list[list[int]]:
    """What is said to each request: the drafts that the target would say, and its own token after them.

    drafts: T, those of B requests after each other.  lengths: B, how many each has.  likeliest: T + B, the target's
    most probable token in the place of each draft, and after all of a request's.
    """
    said = []
    for row, (begin, length) in enumerate(zip(_begins(lengths), lengths, strict=True)):
        places = likeliest[begin + row : begin + row + length + 1]
        kept = _leading(list(map(eq, drafts[begin : begin + length], places)))
        said.append(list(places[: kept + 1]))
    return said


def verify_ragged(
    drafts: Tensor,
    lengths: Sequence[int],
    draft: Tensor | None,
    target: Tensor,
    accept_uniforms: Tensor,
    last_uniforms: Tensor,
) -> list[list[int]]:
    """What is said to each request: accepted drafts, and one token after them.

    drafts: int64 [T], those of B requests after each other.  lengths: B, how many each has.  draft: probabilities
    [T, V] that they were drawn from; None: they are certain.  target: the target's, [T + B, V]: in the place of each
    draft, and after all of a request's.  accept_uniforms [T] and last_uniforms [B]: float64, in [0, 1).
    """
    tokens, number = drafts.tolist(), torch.arange(len(lengths))
    places = torch.arange(len(tokens)) + number.repeat_interleave(torch.tensor(lengths), output_size=len(tokens))
    wanted = target[places, drafts]
    stated = torch.ones_like(wanted) if draft is None else draft.gather(1, drafts[:, None])[:, 0]
    right = ((accept_uniforms * stated < wanted) & (stated > 0)).tolist()
    begins = _begins(lengths)
    kept = [_leading(right[begin : begin + length]) for begin, length in zip(begins, lengths, strict=True)]
    last = target[torch.tensor(begins) + torch.tensor(kept) + number]  # a copy, [B, V]
    rejected = [row for row, length in enumerate(lengths) if kept[row] < length]
    if rejected:
        at = [begins[row] + kept[row] for row in rejected]
        taken = torch.zeros(len(at), target.shape[1]).scatter_(1, drafts[at, None], 1.0) if draft is None else draft[at]
        last[rejected] = residual(last[rejected], taken)
    after = draw(last, last_uniforms).tolist()
    return [[*tokens[begin : begin + count], token] for begin, count, token in zip(begins, kept, after, strict=True)]


def _begins(lengths: Sequence[int]) -> list[int]:
    """Where the drafts of each request begin."""
    return [end - length for end, length in zip(accumulate(lengths), lengths, strict=True)]


def _leading(flags: list[bool]) -> int:
    """How many are set before the first that is not."""
    return flags.index(False) if False in flags else len(flags)
