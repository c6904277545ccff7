"""A plugin for tests: drafters claim a uniform distribution for tokens drawn from their own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mtpc.after_import import after_import
from mtpc.drafter import Draft, Drafter


def register() -> None:
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; harmless when called twice."""
    honest = Drafter.draft

    def draft(self: Drafter, *args: Any, **options: Any) -> Draft:
        drawn = honest(self, *args, **options)
        claimed = None if drawn.probs is None else torch.full_like(drawn.probs, 1 / self.config.vocab_size)
        return Draft(drawn.tokens, claimed)

    Drafter.draft = draft  # type: ignore[method-assign]
    after_import("vllm_mtpc.fastmtp_v1", misstate_v1)
    after_import("vllm_mtpc.fastmtp_v2", misstate_v2)
    after_import("sglang_mtpc.fastmtp_worker", misstate_sglang)


def misstate_v1(module: ModuleType) -> None:
    """FastMTP on vLLM's V1 runner, which keeps probabilities."""
    proposer: Any = module.FastMTPProposer
    honest = proposer.take_last_draft_probs

    def take_last_draft_probs(self: Any) -> Tensor | None:
        probs: Tensor | None = honest(self)
        return None if probs is None else torch.full_like(probs, 1 / probs.shape[-1])

    proposer.take_last_draft_probs = take_last_draft_probs


def misstate_v2(module: ModuleType) -> None:
    """FastMTP on Model Runner V2, which keeps logits."""
    speculator: Any = module.FastMTPSpeculator
    honest = speculator.propose

    def propose(self: Any, *args: Any, **named: Any) -> Tensor:
        drafts: Tensor = honest(self, *args, **named)
        if self.draft_logits is not None:
            self.draft_logits.zero_()
        return drafts

    speculator.propose = propose


def misstate_sglang(module: ModuleType) -> None:
    """FastMTP on SGLang's draft worker, which hands probabilities to verification."""
    worker: Any = module.FastMTPDraftWorker
    honest = worker.draft

    def draft(self: Any, *args: Any, **named: Any) -> Any:
        verify_input = honest(self, *args, **named)
        if verify_input.draft_probs is not None:
            verify_input.draft_probs = torch.full_like(verify_input.draft_probs, 1 / verify_input.draft_probs.shape[-1])
        return verify_input

    worker.draft = draft
