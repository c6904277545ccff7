"""Penalties of one token after the other, as the engines document them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def penalized(
    logits: Tensor,
    counted: Sequence[int],
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
    repetition_penalty: float = 1.0,
    **others: Any,
) -> Tensor:
    """The logits [V] of a token after those that are counted; others: of a request, which is no penalty."""
    found = logits.clone()
    for token in set(counted):
        found[token] -= frequency_penalty * counted.count(token) + presence_penalty
        found[token] *= repetition_penalty ** (1 if found[token] < 0 else -1)
    return found


def counted_of(prompt: Sequence[int], output: Sequence[int], late: bool) -> list[int]:
    """What SGLang counts before the next token.

    late: where its steps overlap, a token counts one token later, and the prompt's last one from the second token on.
    """
    return [prompt[-1], *output[:-1]] if late and output else list(output)
