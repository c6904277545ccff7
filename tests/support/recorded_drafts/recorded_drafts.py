"""A plugin for tests: writes down what drafters of any draft method draft, a line of JSON for each step."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

from mtpc.serving.after_import import after_import

VARIABLE = "RECORDED_DRAFTS"  # names the file
V2_LOOP = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator"


@functools.cache
def register() -> None:
    """Entry point of ``vllm.general_plugins`` and ``sglang.srt.plugins``; a second call does nothing."""
    after_import("vllm_mtpc.v1.proposer", lambda module: record_vllm(module.Proposer))
    after_import("vllm_mtpc.v1.text_proposer", lambda module: record_vllm(module.TextProposer))
    after_import("vllm.v1.spec_decode.llm_base_proposer", lambda module: record_vllm(module.SpecDecodeBaseProposer))
    after_import("vllm_mtpc.native.v1", lambda module: record_vllm(module.NativeProposer))
    after_import("vllm_mtpc.native.v2", lambda module: record_vllm(module.NativeSpeculator))
    after_import(V2_LOOP, lambda module: record_vllm(module.TargetDependentARSpeculator))
    after_import("vllm_mtpc.v2.speculator", lambda module: record_vllm(module.Speculator))
    after_import("sglang_mtpc.verify", record_sglang)


def write(drafts: Any, rank: int = 0) -> None:
    """One line; tensor-parallel ranks after the first have files of their own."""
    with Path(os.environ[VARIABLE] + (f".{rank}" if rank else "")).open("a") as file:
        file.write(json.dumps(drafts) + "\n")


def record_vllm(drafter: Any) -> None:
    """Record the draft tokens [B][K] of each step, except those of dummy runs and of a subclass's call to its base."""
    from vllm.distributed import get_tensor_model_parallel_rank

    propose = drafter.propose

    @functools.wraps(propose)
    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        calls_its_own, self.is_recorded = getattr(self, "is_recorded", False), True
        drafts = propose(self, *args, **named)
        self.is_recorded = calls_its_own
        if not calls_its_own and not named.get("dummy_run"):
            write(drafts if isinstance(drafts, list) else drafts.tolist(), get_tensor_model_parallel_rank())
        return drafts

    drafter.propose = recorded


def record_sglang(module: Any) -> None:
    """Drafted tokens [N] of any drafter by the ids of requests, as they come to verification; rank 1 has a file too."""
    honest = module.sample_and_verify

    def sample_and_verify(original: Any, built: Any, batch: Any, *args: Any, **named: Any) -> Any:
        ids = [request.rid for request in batch.reqs]
        drafts = built.draft_token.view(len(ids), -1)[:, 1:].tolist()
        write(dict(zip(ids, drafts, strict=True)), module.get_parallel().tp_rank)
        return honest(original, built, batch, *args, **named)

    module.sample_and_verify = sample_and_verify
