"""The output head's rows of the draft vocabularies, in the place of the target's head."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from sglang_mtpc.finite import finite


class VocabularyHead:
    """Logits of the requests of one call, each from its draft vocabulary.

    numbers: int64 [requests of the batch], the number of each one's draft vocabulary; None: the first for all.
    """

    def __init__(self, draft_logits: DraftLogits, numbers: Tensor | None) -> None:
        self.draft_logits, self.numbers = draft_logits, numbers

    def __call__(self, states: Tensor) -> Tensor:
        """float32 [n, V] of states [n, d], as many for each request; see `finite`."""
        numbers = self.numbers
        if numbers is not None:
            numbers = numbers.repeat_interleave(len(states) // max(1, len(numbers)))
        return finite(self.draft_logits(states, numbers).float())


class NoHead:
    """In the place of a head that is not asked: SGLang selects, draws and keeps what is a few numbers for each row.

    candidates: how many first tokens SGLang selects, 1 of a chain.
    """

    def __init__(self, candidates: int = 1) -> None:
        self.candidates = candidates

    def __call__(self, states: Tensor) -> Tensor:
        """Zeros, float32 [n, candidates] of states [n, d]."""
        return states.new_zeros(len(states), self.candidates, dtype=torch.float32)


class DraftLogitsProcessor(LogitsProcessor):
    """SGLang's own, but for a head of ours."""

    def _get_logits(self, hidden_states: Tensor, lm_head: Any, logits_metadata: Any, *rest: Any, **more: Any) -> Tensor:
        """Logits [n, V] of states [n, d]."""
        if isinstance(lm_head, VocabularyHead | NoHead):
            return lm_head(hidden_states)
        logits: Tensor = super()._get_logits(hidden_states, lm_head, logits_metadata, *rest, **more)
        return logits
