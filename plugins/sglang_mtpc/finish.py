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


def one_by_one(original: Callable[..., None], self: Any, new_accepted_len: int = 1, *more: Any, **named: Any) -> None:
    """SGLang's search after each of a step's tokens, where a stop string or a pattern may come before the last one.

    self: SGLang's ``Req``, with the step's tokens at the end of its ``output_ids``.
    """
    asked = self.sampling_params
    if new_accepted_len < 2 or not (asked.stop_strs or asked.stop_regex_strs) or self.finished() or self.to_finish:
        original(self, new_accepted_len, *more, **named)
        return
    tokens = self.output_ids[-new_accepted_len:]
    del self.output_ids[-new_accepted_len:]
    grammar, self.grammar = self.grammar, None  # it has read all of the step's tokens already
    while tokens and not self.finished():
        self.output_ids.append(tokens.pop(0))
        if not tokens:
            self.grammar = grammar
        original(self, 1, *more, **named)
        if self.finished() and self.finished_len is None:
            self.finished_len = len(self.output_ids)
    self.grammar = grammar
    self.output_ids.extend(tokens)  # SGLang cuts them at `finished_len`
