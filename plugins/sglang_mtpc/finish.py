"""Where a text ends: at the token at which it would have ended without drafts.

SGLang looks for stop strings in all tokens of a step at once: of several it takes the first of the request's list, not
the first in the text, and one that is complete only beyond `max_new_tokens` cuts the text before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_mtpc.hooks import put_around

HOOKED = "sglang.srt.managers.schedule_batch.Req.update_finish_state"


def install() -> None:
    """Put `one_by_one` around SGLang's search for the end of a text."""
    put_around(HOOKED, one_by_one)


def one_by_one(original: Callable[..., None], request: Any, new_accepted_len: int = 1) -> None:
    """SGLang's search after each of a step's tokens, where a stop string or a pattern may come before the last one.

    request: SGLang's ``Req``, with the step's tokens at the end of its ``output_ids``.
    """
    asked = request.sampling_params
    if (
        new_accepted_len < 2
        or not (asked.stop_strs or asked.stop_regex_strs)
        or request.finished()
        or request.to_finish
    ):
        original(request, new_accepted_len)
        return
    tokens = request.output_ids[-new_accepted_len:]
    del request.output_ids[-new_accepted_len:]
    grammar, request.grammar = request.grammar, None  # it has read all of the step's tokens already
    while tokens and not request.finished():
        request.output_ids.append(tokens.pop(0))
        if not tokens:
            request.grammar = grammar
        original(request, 1)
        if request.finished() and request.finished_len is None:
            request.finished_len = len(request.output_ids)
    request.grammar = grammar
    request.output_ids.extend(tokens)  # SGLang cuts them at `finished_len`
