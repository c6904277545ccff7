"""Output heads for SGLang's ``LogitsProcessor`` in place of the target's: draft vocabularies, or no logits at all."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from torch import Tensor

from mtpc.target_head.draft_logits import DraftLogits
from sglang_mtpc.finite import finite


class VocabularyHead:
    """Output head that scores each request's draft vocabulary.

    Args:
        draft_logits: Rows of the target's head for all draft vocabularies.
        numbers: Number of each request's draft vocabulary, int64 [requests]; None: the first for all.
    """

    def __init__(self, draft_logits: DraftLogits, numbers: Tensor | None) -> None:
        self.draft_logits, self.numbers = draft_logits, numbers

    def __call__(self, states: Tensor) -> Tensor:
        """Return logits, float32 [n, V], of states [n, d], n / requests rows for each request; see `finite`."""
        numbers = self.numbers
        if numbers is not None:
            numbers = numbers.repeat_interleave(len(states) // max(1, len(numbers)))
        return finite(self.draft_logits(states, numbers).float())


class ZeroHead:
    """Replaces the head where its logits are not needed; SGLang then handles a few zeros instead of a vocabulary.

    Args:
        candidates: First draft tokens that SGLang selects, 1 for a chain.
    """

    def __init__(self, candidates: int = 1) -> None:
        self.candidates = candidates

    def __call__(self, states: Tensor) -> Tensor:
        """Return zeros, float32 [n, candidates], for states [n, d]."""
        return states.new_zeros(len(states), self.candidates, dtype=torch.float32)


class DraftLogitsProcessor(LogitsProcessor):
    """SGLang's logits processor, which also accepts the heads of this module."""

    def _get_logits(self, hidden_states: Tensor, lm_head: Any, logits_metadata: Any, *rest: Any, **more: Any) -> Tensor:
        """Return logits [n, V] of states [n, d]."""
        if isinstance(lm_head, VocabularyHead | ZeroHead):
            return lm_head(hidden_states)
        logits: Tensor = super()._get_logits(hidden_states, lm_head, logits_metadata, *rest, **more)
        return logits
