"""Draft vocabularies for SGLang's own drafters ``EAGLE`` and ``NEXTN``, whose draft loop is unchanged.

SGLang verifies their drafts by the target's own samples, or by rejection sampling with the draft distributions
(``--speculative-use-rejection-sampling``).  Both are lossless for any draft tokens, so only the draft logits change.
On a CPU the core verifies, because SGLang there takes the most probable tokens at any temperature.
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
from mtpc.target_head.shard import head_shard
from mtpc.vocabulary.settings import open_vocabularies
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import verify
from sglang_mtpc.eagle_worker import EagleWorker
from sglang_mtpc.metrics import DraftMetrics
from sglang_mtpc.ranks import check_ranks, head_ranks
from sglang_mtpc.request_vocabularies import SGLangRequestVocabularies
from sglang_mtpc.token_map import vocabulary_values
from sglang_mtpc.vocabulary_head import VocabularyHead

logger = logging.getLogger(f"sglang.{__name__}")


def restrict(
    model: nn.Module, vocabularies: DraftVocabularies, vocab_size: int, target_head: Any, dtype: torch.dtype
) -> VocabularyHead:
    """Restrict the logits of SGLang's draft model to the requests' draft vocabularies.

    Args:
        model: SGLang's draft model, which already shares the weight of the target's head.
        vocabularies: The draft vocabularies.
        vocab_size: Tokens of the target's vocabulary.
        target_head: The target's head; of a quantized one SGLang shares the weight without its scales.
        dtype: Dtype of the states.

    Returns:
        The head that now computes the model's logits.

    Raises:
        MTPCError: The model has no single output head over the target's vocabulary, or changes its logits, or the rows
            of the head cannot be read, see `DraftLogits`.
    """
    processors = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
    lm_head = getattr(model, "lm_head", None)
    if getattr(lm_head, "weight", None) is getattr(target_head, "weight", False):
        lm_head = target_head
    changed = any(one.logit_scale is not None or one.final_logit_softcapping for one in processors)
    shard = None if changed or not processors else head_shard(lm_head, dtype)
    if shard is None or getattr(lm_head, "org_vocab_size", len(shard)) != vocab_size:
        raise MTPCError(
            f"a draft vocabulary needs one output head over the target's {vocab_size} tokens without logit scale or "
            f"soft cap, which {type(model).__name__} lacks; set its language to 'none'."
        )
    head = VocabularyHead(DraftLogits(vocabularies, shard, ranks=head_ranks()), None)
    for processor in processors:
        processor._get_logits = lambda hidden_states, *_, **__: head(hidden_states)
    logger.info("%s: %s.", type(model).__name__, head.draft_logits.summary)
    return head


class NativeDraftWorker(EagleDraftWorker):
    """SGLang's draft worker, with draft vocabularies from ``--speculative-token-map``.

    Attributes:
        head: Head of the draft vocabularies; None: the whole vocabulary is drafted.
        requests: Draft vocabularies of the batch; None: all requests use one.
        metrics: Counts drafts; None: metrics are disabled.
    """

    head: VocabularyHead | None = None
    requests: SGLangRequestVocabularies | None = None
    metrics: DraftMetrics | None = None

    def init_token_map(self) -> None:
        """Use no token map of SGLang's: tokens keep their ids, so draft distributions remain usable."""
        self.hot_token_id: Tensor | None = None

    def init_lm_head(self) -> None:
        """Share the target's head as SGLang does, then restrict it to the draft vocabularies.

        Raises:
            MTPCError: See `open_vocabularies` and `restrict`.
        """
        super().init_lm_head()
        spec, config = get_spec(), self.target_worker.model_config
        folder = Path(spec.speculative_draft_model_path or config.model_path)
        check_ranks(folder)
        values = vocabulary_values(spec.speculative_token_map)
        vocabularies = open_vocabularies(values, folder, config.vocab_size, config.model_path)
        if vocabularies is not None and torch.device(self.device).type != "cpu":
            vocabularies = vocabularies.union()  # in CUDA graphs, see `DraftVocabularies`
        if vocabularies is None:
            return
        head = getattr(self.target_worker.model_runner.model, "lm_head", None)
        self.head = restrict(self.draft_runner.model, vocabularies, config.vocab_size, head, config.dtype)
        self.metrics = DraftMetrics.of_served(None, vocabularies, spec.speculative_num_steps)
        if vocabularies.detector is not None:
            rows = len(self.req_to_token_pool.req_to_token)
            self.requests = SGLangRequestVocabularies(vocabularies.detector, rows, torch.device(self.device))
            self.requests.tally = None if self.metrics is None else self.metrics.tally


class NativeWorker(EagleWorker):
    """SGLang's worker for its own draft layers."""

    draft_worker_class = NativeDraftWorker

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if torch.device(self.device).type == "cpu":
            verify.install()

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Run one step of the scheduler and return SGLang's ``GenerationBatchResult``."""
        worker = self._draft_worker
        if worker.requests is not None:
            worker.head.numbers = worker.requests.numbers[: len(batch.reqs)]  # `choose` writes into this memory
        return super().forward_batch_generation(batch, *args, **options)
