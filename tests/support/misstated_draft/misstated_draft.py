"""A plugin for tests: drafters claim a uniform distribution for tokens drawn from their own."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mtpc.after_import import after_import

SWITCH = "MISSTATED_DRAFTS"  # names a file: drafters misstate as long as it is there


def register() -> None:
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; harmless when called twice."""
    after_import("vllm_mtpc.proposer", misstate_v1)
    after_import("vllm_mtpc.speculator", misstate_v2)
    after_import("sglang_mtpc.verify", misstate_sglang)


def on() -> bool:
    """Whether drafters misstate now."""
    return Path(os.environ[SWITCH]).exists()


def misstate_v1(module: ModuleType) -> None:
    """vLLM's V1 runner, which keeps probabilities."""
    proposer: Any = module.Proposer
    honest = proposer.take_last_draft_probs

    def take_last_draft_probs(self: Any) -> Tensor | None:
        probs: Tensor | None = honest(self)
        return torch.full_like(probs, 1 / probs.shape[-1]) if probs is not None and on() else probs

    proposer.take_last_draft_probs = take_last_draft_probs


def misstate_v2(module: ModuleType) -> None:
    """Model Runner V2, which keeps logits."""
    speculator: Any = module.Speculator
    honest = speculator.propose

    def propose(self: Any, *args: Any, **named: Any) -> Tensor:
        drafts: Tensor = honest(self, *args, **named)
        if self.draft_logits is not None and on():
            self.draft_logits.zero_()
        return drafts

    speculator.propose = propose


def misstate_sglang(module: ModuleType) -> None:
    """Any drafter of SGLang's, before its distributions are verified, as long as the file `SWITCH` names exists."""
    honest: Any = module.judge

    def judge(original: Any, built: Any, *args: Any, **named: Any) -> Any:
        if built.draft_probs is not None and on():
            built.draft_probs = torch.full_like(built.draft_probs, 1 / built.draft_probs.shape[-1])
        return honest(original, built, *args, **named)

    module.judge = judge  # type: ignore[attr-defined]
