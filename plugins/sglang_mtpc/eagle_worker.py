"""SGLang's own EAGLE worker with a draft worker of ours, and the numbers by which both of them draft and verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2


@contextmanager
def sized(worker: Any, *, steps: int | None = None, tokens: int | None = None) -> Iterator[None]:
    """Let one of SGLang's workers draft so many steps, and verify so many tokens of each request; None: as before.

    SGLang's functions read both numbers off the worker.  Nothing else changes them.
    """
    before = worker.speculative_num_steps, worker.speculative_num_draft_tokens
    worker.speculative_num_steps = before[0] if steps is None else steps
    worker.speculative_num_draft_tokens = before[1] if tokens is None else tokens
    try:
        yield
    finally:
        worker.speculative_num_steps, worker.speculative_num_draft_tokens = before


class EagleWorker(EAGLEWorkerV2):
    """Makes a draft worker of ours, chooses the draft vocabularies of a batch before a step, and counts its drafts.

    drafts_with: its class, an `EagleDraftWorker` with ``requests``, a `RequestVocabularies`, or None where all requests
    draft from the same tokens, and ``watch``, or None where nobody watches.
    """

    drafts_with: type

    def __init__(self, *args: Any, **options: Any) -> None:
        theirs = eagle_worker_v2.EagleDraftWorker
        eagle_worker_v2.EagleDraftWorker = self.drafts_with  # the name by which SGLang's worker makes its draft worker
        try:
            super().__init__(*args, **options)
        finally:
            eagle_worker_v2.EagleDraftWorker = theirs
        assert isinstance(self._draft_worker, self.drafts_with)

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """One step of the scheduler, by SGLang: its ``GenerationBatchResult``."""
        requests, watch = self._draft_worker.requests, self._draft_worker.watch
        if requests is not None:
            requests.choose(batch.reqs)
        if watch is not None:
            watch.drafting(batch, None if requests is None else requests.chosen)
        return super().forward_batch_generation(batch, *args, **options)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], *args: Any, **options: Any) -> None:
        """Called by SGLang, step after step, once it has the verdicts on the host."""
        super().on_verify_complete_cpu(num_correct_drafts_per_req, *args, **options)
        if self._draft_worker.watch is not None:
            self._draft_worker.watch.verified(num_correct_drafts_per_req)
