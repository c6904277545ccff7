"""End of a completion at the token where it would end without speculative decoding.

SGLang searches stop strings in all tokens of a decoding step at once.  Of several matches it takes the first of the
request's list instead of the first in the completion.  A match that ends beyond `max_new_tokens` would also cut the
completion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_mtpc.hooks import put_around

HOOKED = "sglang.srt.managers.schedule_batch.Req.update_finish_state"


def install() -> None:
    """Wrap SGLang's ``Req.update_finish_state`` with `update_finish_state`."""
    put_around(HOOKED, update_finish_state)


def update_finish_state(
    original: Callable[..., None], self: Any, new_accepted_len: int = 1, *more: Any, **named: Any
) -> None:
    """Run SGLang's search after each token of a step, where a stop string or pattern may end before the last one.

    Args:
        original: SGLang's method.
        self: SGLang's ``Req``, with the step's tokens at the end of its ``output_ids``.
        new_accepted_len: Tokens of the step.
        *more: Further arguments of the method.
        **named: Further arguments of the method.
    """
    params = self.sampling_params
    if new_accepted_len < 2 or not (params.stop_strs or params.stop_regex_strs) or self.finished() or self.to_finish:
        original(self, new_accepted_len, *more, **named)
        return
    tokens = self.output_ids[-new_accepted_len:]
    del self.output_ids[-new_accepted_len:]
    grammar, self.grammar = self.grammar, None  # it has read all tokens of the step already
    while tokens and not self.finished():
        self.output_ids.append(tokens.pop(0))
        if not tokens:
            self.grammar = grammar
        original(self, 1, *more, **named)
        if self.finished() and self.finished_len is None:
            self.finished_len = len(self.output_ids)
    self.grammar = grammar
    self.output_ids.extend(tokens)  # SGLang cuts them at `finished_len`
