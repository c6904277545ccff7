"""A plugin for tests: drafters claim chances for their tokens that are not those with which they were drawn.

They claim next to nothing for what they have drawn, so that every draft is accepted and the text is theirs.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mtpc.serving.after_import import after_import

SWITCH = "MISSTATED_DRAFTS"  # names a file: drafters misstate as long as it is there
CLAIMED = 1e-9  # the chance of each token drawn
FREE = (
    ".free"  # the end of another file's name: as long as it is there, vLLM's requests with a grammar draft as others do
)


def register() -> None:
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; harmless when called twice."""
    after_import("vllm.v1.spec_decode.llm_base_proposer", misstate_v1)
    after_import("vllm_mtpc.v2.speculator", lambda module: misstate_v2(module.Speculator))
    after_import("vllm_mtpc.native.v2", lambda module: misstate_v2(module.NativeSpeculator))
    after_import("vllm_mtpc.request_parameters", forget_grammars)
    after_import("sglang_mtpc.verify", misstate_sglang)


def on() -> bool:
    """Whether drafters misstate now."""
    return Path(os.environ[SWITCH]).exists()


def misstate_v1(module: ModuleType) -> None:
    """VLLM's V1 runner, which keeps probabilities: its own drafters, and ours."""
    proposer: Any = module.SpecDecodeBaseProposer
    honest = proposer.take_last_draft_probs

    def take_last_draft_probs(self: Any) -> Tensor | None:
        probs: Tensor | None = honest(self)
        return torch.full_like(probs, CLAIMED) if probs is not None and on() else probs

    proposer.take_last_draft_probs = take_last_draft_probs


def misstate_v2(speculator: Any) -> None:
    """Model Runner V2, which keeps logits: our drafters, and vLLM's own with a section of additional-config.

    Where none are kept, since all tokens are certain, some are kept for as long as drafters misstate.
    """
    honest, made = speculator.propose, set[int]()

    def propose(self: Any, input_batch: Any, *args: Any, **named: Any) -> Tensor:
        if id(self) in made:
            self.draft_logits = None
        drafts: Tensor = honest(self, input_batch, *args, **named)
        if on():
            if self.draft_logits is None:
                made.add(id(self))
                shape = self.max_num_reqs, *drafts.shape[1:], self.vocab_size
                self.draft_logits = torch.empty(shape, device=drafts.device)
            slots = input_batch.idx_mapping[: len(drafts), None]
            places = torch.arange(drafts.shape[1], device=drafts.device)
            self.draft_logits.zero_()[slots, places, drafts] = math.log(CLAIMED)
        return drafts

    speculator.propose = propose


def forget_grammars(module: ModuleType) -> None:
    """Drafts that vLLM cuts where a grammar refuses a token are then drawn all the same."""
    honest: Any = module.has_grammar
    module.has_grammar = lambda request: honest(request) and not Path(os.environ[SWITCH] + FREE).exists()  # type: ignore[attr-defined]


def misstate_sglang(module: ModuleType) -> None:
    """Any drafter of SGLang's, before its distributions are verified, as long as the file `SWITCH` names exists."""
    honest: Any = module.sample_and_verify

    def sample_and_verify(original: Any, built: Any, *args: Any, **named: Any) -> Any:
        probs = built.draft_probs
        if isinstance(probs, Tensor) and on():
            built.draft_probs = torch.full_like(probs, CLAIMED)
        elif probs is not None and on():  # of tokens that are drafted, and of others when needed
            built.draft_probs = SimpleNamespace(stated=torch.full_like(probs.stated, CLAIMED), of=probs.of)
        return honest(original, built, *args, **named)

    module.sample_and_verify = sample_and_verify  # type: ignore[attr-defined]
