"""SGLang's EAGLE worker with a draft worker of this project, and a way to override its step and token counts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2

from sglang_mtpc.runtime_states import shared_state


@contextmanager
def override_sizes(worker: Any, *, steps: int | None = None, tokens: int | None = None) -> Iterator[None]:
    """Override the draft steps and the verified tokens of one of SGLang's workers.

    SGLang's functions read both numbers from the worker.  Only this context manager changes them.

    Args:
        worker: SGLang's worker or draft worker.
        steps: Draft steps; None: unchanged.
        tokens: Verified tokens of each request, root included; None: unchanged.

    Yields:
        None; the old numbers return at the end.
    """
    before = worker.speculative_num_steps, worker.speculative_num_draft_tokens
    worker.speculative_num_steps = before[0] if steps is None else steps
    worker.speculative_num_draft_tokens = before[1] if tokens is None else tokens
    try:
        yield
    finally:
        worker.speculative_num_steps, worker.speculative_num_draft_tokens = before


class EagleWorker(EAGLEWorkerV2):
    """SGLang's EAGLE worker with a draft worker of another class, draft vocabularies by request, and metrics.

    Attributes:
        draft_worker_class: A subclass of SGLang's ``EagleDraftWorker``.  It has an attribute ``requests``, a
            `SGLangRequestVocabularies` or None where all requests use one vocabulary.  It also has ``metrics``, a
            `DraftMetrics` or None where metrics are disabled.
        replaced_class: SGLang's draft worker that this class replaces.
    """

    draft_worker_class: type
    replaced_class: type = EagleDraftWorker

    def __init__(self, *args: Any, **options: Any) -> None:
        replaced = self.replaced_class
        module = sys.modules[replaced.__module__]
        setattr(module, replaced.__name__, self.draft_worker_class)  # SGLang creates it by this name
        try:
            super().__init__(*args, **options)
        finally:
            setattr(module, replaced.__name__, replaced)
        assert isinstance(self._draft_worker, self.draft_worker_class)

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Run one step of the scheduler and return SGLang's ``GenerationBatchResult``."""
        requests, metrics = self._draft_worker.requests, self._draft_worker.metrics
        if requests is not None:
            requests.choose(batch.reqs)
        if metrics is not None:
            metrics.begin_step(batch, None if requests is None else requests.chosen)
        return super().forward_batch_generation(batch, *args, **options)

    def build_adaptive_runtime_state(
        self, speculative_num_steps: int, speculative_num_draft_tokens: int, *args: Any, **options: Any
    ) -> SpecRuntimeState:
        """Build a runtime state of another draft length; on a CPU it shares all but its numbers."""
        sizes = speculative_num_steps, speculative_num_draft_tokens
        if torch.device(self.device).type == "cpu":
            return shared_state(self.target_worker.model_runner, *sizes, self._draft_worker)
        return super().build_adaptive_runtime_state(*sizes, *args, **options)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], *args: Any, **options: Any) -> None:
        """Count accepted tokens; SGLang calls it for each step in order, when the counts are on the host."""
        super().on_verify_complete_cpu(num_correct_drafts_per_req, *args, **options)
        if self._draft_worker.metrics is not None:
            self._draft_worker.metrics.verified(num_correct_drafts_per_req)
