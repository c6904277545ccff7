"""What a draft model gets accepted for greedy texts, by transformers."""

from __future__ import annotations

from typing import NamedTuple

from tests.engine.exact import Reference


class Accepted(NamedTuple):
    """Counts of decoding steps and of accepted draft tokens."""

    steps: int
    tokens: int


def accepted(draft: Reference, prompt: list[int], text: list[int], length: int, drafts: int, unread: int) -> Accepted:
    """Count what is accepted of a draft model with the target's vocabulary.

    Args:
        draft: The draft model.
        prompt: The prompt.
        text: What the target writes, at least ``length + drafts`` tokens.
        length: Tokens to generate.
        drafts: K.
        unread: First tokens of a prompt that the draft model does not read.
    """
    known, steps, right = 1, 0, 0
    while known < length:
        drafted = draft.greedy([*prompt, *text[:known]][unread:], drafts)
        agree = [*(one == other for one, other in zip(drafted, text[known:], strict=False)), False].index(False)
        known, steps, right = known + agree + 1, steps + 1, right + agree
    return Accepted(steps, right)
