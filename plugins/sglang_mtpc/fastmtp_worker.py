"""SGLang's own EAGLE worker with a FastMTP drafter, each request with the draft vocabulary of its language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2

from mtpc.draft_clock import DraftClock
from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc import sampling
from sglang_mtpc.fastmtp_settings import vocabulary_values
from sglang_mtpc.request_maps import RequestMaps


class FastMTPDraftWorker(EagleDraftWorker):
    """Shares modules of the target, reads a token map as `mtpc.vocabulary` does, and times what SGLang drafts."""

    def adopt(self, clock: DraftClock) -> None:
        """Complete a worker that SGLang has made as one of its own."""
        spec = get_spec()
        folder, size = Path(spec.speculative_draft_model_path), self.target_worker.model_config.vocab_size
        self.clock = clock
        self.vocabularies = open_vocabularies(vocabulary_values(spec.speculative_token_map), folder, size)
        self.maps: RequestMaps | None = None

    def init_token_map(self) -> None:
        """None of SGLang's kind, whose drafts would lie outside of the distribution that is verified."""
        self.hot_token_id = None

    def init_lm_head(self) -> None:
        """Share the target's embedding and head, and keep the maps of requests where there are several."""
        model = self.draft_runner.model
        model.share(self.target_worker.model_runner.model, self.vocabularies)
        if self.vocabularies is not None and self.vocabularies.detector is not None:
            requests = len(self.req_to_token_pool.req_to_token)
            self.maps = RequestMaps(self.vocabularies.detector, requests, torch.device(self.device))
            model.logits_processor.maps = self.maps.maps

    def _draft_extend_for_prefill(self, batch: Any, *args: Any, **options: Any) -> Any:
        """The keys of a prompt, and the first draft: of a greedy request the likeliest token, where SGLang draws one.

        SGLang writes a temperature of 0 as a top-k of 1; the target then has one possible token, so no draft, however
        it was chosen, changes what is said.
        """
        draft_input = super()._draft_extend_for_prefill(batch, *args, **options)
        best, drawn = draft_input.draft_probs.argmax(-1, keepdim=True), draft_input.topk_index
        draft_input.topk_index = torch.where(batch.sampling_info.top_ks[:, None] == 1, best, drawn)
        draft_input.topk_p = draft_input.draft_probs.gather(1, draft_input.topk_index)
        return draft_input

    def draft(self, *args: Any, **options: Any) -> Any:
        """All drafts but the first, from it, and their input for verification."""
        with self.clock:
            return super().draft(*args, **options)

    def _draft_extend_for_decode(self, *args: Any, **options: Any) -> None:
        """The keys of what was accepted, and the first draft of the next step."""
        with self.clock:
            super()._draft_extend_for_decode(*args, **options)


class FastMTPWorker(EAGLEWorkerV2):
    """Chooses the maps of a batch before SGLang runs a step of it; see `sampling` for how drafts are verified."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__(server_args, gpu_id, nccl_port, target_worker)
        parallel = get_parallel()
        clock = DraftClock.from_environment(torch.device(self.device), parallel.tp_rank, parallel.dp_rank)
        self._draft_worker.__class__ = FastMTPDraftWorker  # SGLang's worker names the class of the draft worker itself
        self._draft_worker.adopt(clock)
        sampling.install()

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """One step of the scheduler, by SGLang: its ``GenerationBatchResult``."""
        maps = self._draft_worker.maps
        if maps is not None:
            maps.choose(batch.reqs)
        return super().forward_batch_generation(batch, *args, **options)
