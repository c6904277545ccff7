"""A plugin for tests: drafters claim a uniform distribution for tokens drawn from their circuit."""

from __future__ import annotations

from typing import Any

import torch

from mtpc.drafter import Draft, Drafter


def register() -> None:
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; harmless when called twice."""
    honest = Drafter.draft

    def draft(self: Drafter, *args: Any, **options: Any) -> Draft:
        drawn = honest(self, *args, **options)
        claimed = None if drawn.probs is None else torch.full_like(drawn.probs, 1 / self.config.vocab_size)
        return Draft(drawn.tokens, claimed)

    Drafter.draft = draft  # type: ignore[method-assign]
