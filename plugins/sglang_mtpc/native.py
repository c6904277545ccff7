"""Draft vocabularies for the draft layers that SGLang runs itself: ``EAGLE`` and ``NEXTN``, with its loop as it is.

SGLang verifies their drafts by the target's own choices, or with the distributions that they were drawn from
(``--speculative-use-rejection-sampling``): both are lossless for drafts chosen in any way, so what may be drafted is
all that has to change.  On a CPU, where SGLang takes the most likely tokens at any temperature, the core verifies.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import plain_weight
from mtpc.vocabulary.settings import open_vocabularies
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import verify
from sglang_mtpc.eagle_worker import EagleWorker
from sglang_mtpc.metrics import Watch
from sglang_mtpc.ranks import check_ranks, head_ranks
from sglang_mtpc.request_vocabularies import RequestVocabularies
from sglang_mtpc.token_map import vocabulary_values
from sglang_mtpc.vocabulary_head import VocabularyHead

logger = logging.getLogger(f"sglang.{__name__}")


def restrict(model: nn.Module, vocabularies: DraftVocabularies, vocab_size: int) -> VocabularyHead:
    """Let a draft model, whose head is shared already, make logits of the requests' draft vocabularies alone.

    Errors: `MTPCError` for a model with another head than one over all of the target's tokens, or a quantised one.
    """
    processors = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
    lm_head = getattr(model, "lm_head", None)
    shard = plain_weight(lm_head)
    changed = any(one.logit_scale is not None or one.final_logit_softcapping for one in processors)
    if shard is None or getattr(lm_head, "org_vocab_size", len(shard)) != vocab_size or not processors or changed:
        raise MTPCError(
            f"a draft vocabulary needs one output head over the target's {vocab_size} tokens that is not quantised "
            f"and whose logits are taken as they are, which {type(model).__name__} has not; set its language to 'none'."
        )
    head = VocabularyHead(DraftLogits(vocabularies, shard, ranks=head_ranks()), None)
    for processor in processors:
        processor._get_logits = lambda hidden_states, *_, **__: head(hidden_states)
    logger.info("%s: %s.", type(model).__name__, head.draft_logits.summary)
    return head


class NativeDraftWorker(EagleDraftWorker):
    """SGLang's own, which reads a token map as `mtpc.vocabulary` does."""

    head: VocabularyHead | None = None
    requests: RequestVocabularies | None = None
    watch: Watch | None = None  # None: nobody watches

    def init_token_map(self) -> None:
        """None of SGLang's kind: tokens keep their numbers, so that distributions can be stated as well."""
        self.hot_token_id: Tensor | None = None

    def init_lm_head(self) -> None:
        """SGLang's, which shares the target's head; then only rows of it are read.

        Errors: `MTPCError`, see `open_vocabularies` and `restrict`.
        """
        super().init_lm_head()
        spec, config = get_spec(), self.target_worker.model_config
        folder = Path(spec.speculative_draft_model_path or config.model_path)
        check_ranks(folder)
        values = vocabulary_values(spec.speculative_token_map)
        vocabularies = open_vocabularies(values, folder, config.vocab_size, config.model_path)
        if vocabularies is not None and torch.device(self.device).type != "cpu":
            vocabularies = vocabularies.together()  # in CUDA graphs, see `DraftVocabularies`
        if vocabularies is None:
            return
        self.head = restrict(self.draft_runner.model, vocabularies, config.vocab_size)
        self.watch = Watch.of_served(None, vocabularies, spec.speculative_num_steps)
        if vocabularies.detector is not None:
            rows = len(self.req_to_token_pool.req_to_token)
            self.requests = RequestVocabularies(vocabularies.detector, rows, torch.device(self.device))
            self.requests.tally = None if self.watch is None else self.watch.tally


class NativeWorker(EagleWorker):
    """SGLang's own worker for its own draft layers."""

    drafts_with = NativeDraftWorker

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if torch.device(self.device).type == "cpu":
            verify.install()

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """One step of the scheduler, by SGLang: its ``GenerationBatchResult``."""
        worker = self._draft_worker
        if worker.requests is not None:
            worker.head.numbers = worker.requests.numbers[: len(batch.reqs)]  # which are chosen in place
        return super().forward_batch_generation(batch, *args, **options)
