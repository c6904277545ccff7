"""A plugin for tests: tensor-parallel ranks after the first draft from states that are off by an ulp.

What each rank states of its drafts is written down as a digest, a line for each step.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtpc.serving.after_import import after_import

VARIABLE = "STATED_DRAFTS"  # names the file; ranks after the first have files of their own


@functools.cache
def register() -> None:
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; a second call does nothing."""
    after_import("vllm_mtpc.v1.proposer", lambda module: in_vllm(module.Proposer))
    after_import("vllm_mtpc.native.v1", lambda module: in_vllm(module.NativeProposer))
    after_import("vllm.v1.spec_decode.llm_base_proposer", lambda module: in_vllm(module.SpecDecodeBaseProposer))
    after_import("sglang_mtpc.parallel_worker", lambda module: in_sglang(module.ParallelWorker, "_draft"))
    after_import(
        "sglang_mtpc.autoregressive_worker", lambda module: in_sglang(module.AutoregressiveDraftWorker, "draft")
    )
    after_import("sglang_mtpc.native", lambda module: in_sglang(module.NativeDraftWorker, "draft"))


def of_rank(states: Tensor, rank: int) -> Tensor:
    """The states that a rank has."""
    return torch.nextafter(states, torch.full_like(states, torch.inf)) if rank else states


def note(stated: Tensor | None, rank: int) -> None:
    """One line."""
    digest = "greedy" if stated is None else hashlib.sha256(stated.numpy().tobytes()).hexdigest()
    with Path(os.environ[VARIABLE] + (f".{rank}" if rank else "")).open("a") as file:
        file.write(digest + "\n")


def in_vllm(drafter: Any) -> None:
    """Shift the states that a V1 drafter reads, and note its probabilities; nested calls of `propose` shift nothing."""
    from vllm.distributed import get_tensor_model_parallel_rank

    propose = drafter.propose

    @functools.wraps(propose)
    def off(self: Any, *, target_hidden_states: Tensor, **named: Any) -> Any:
        if getattr(self, "is_off", False):
            return propose(self, target_hidden_states=target_hidden_states, **named)
        self.is_off, rank = True, get_tensor_model_parallel_rank()
        drafts = propose(self, target_hidden_states=of_rank(target_hidden_states, rank), **named)
        self.is_off = False
        note(self._last_draft_probs, rank)
        return drafts

    drafter.propose = off


def in_sglang(worker: Any, name: str) -> None:
    """What a worker is to verify carries the distributions of a chain."""
    from sglang.srt.runtime_context import get_parallel

    draft = getattr(worker, name)

    def off(self: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        rank = get_parallel().tp_rank
        batch.spec_info.hidden_states = of_rank(batch.spec_info.hidden_states, rank)
        built = draft(self, batch, *rest, **named)
        note(built.draft_probs, rank)
        return built

    setattr(worker, name, off)
