"""Draft vocabularies and prompt lookup for SGLang's own drafters, whose draft loop and verification are SGLang's.

SGLang verifies their drafts by the target's own samples, or by rejection sampling with the draft distributions
(``--speculative-use-rejection-sampling``).  Both are lossless for any draft tokens, so only the draft logits change.
With prompt lookup they are those of the mixture, and the drafts are verified by rejection sampling.
On a CPU the core verifies, because SGLang there takes the most probable tokens at any temperature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.runtime_context import get_schedule, get_spec
from sglang.srt.speculative.adaptive_runtime_state import AdaptiveController
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2
from sglang.srt.speculative.standalone_worker_v2 import StandaloneDraftWorker, StandaloneWorkerV2
from torch import Tensor, nn

from mtpc.draft import Draft
from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.shard import head_shard
from mtpc.vocabulary.settings import open_vocabularies
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import verify
from sglang_mtpc.draft_limits import keep_limits
from sglang_mtpc.eagle_worker import EagleWorker, override_sizes
from sglang_mtpc.finite import LOWEST
from sglang_mtpc.longer_copies import LongerCopies
from sglang_mtpc.metrics import DraftMetrics
from sglang_mtpc.native_lookup import NativePromptLookup
from sglang_mtpc.ranks import check_ranks, head_ranks
from sglang_mtpc.request_vocabularies import SGLangRequestVocabularies
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.timing import make_dummy_step
from sglang_mtpc.token_map import copies, read, vocabulary_values
from sglang_mtpc.vocabulary_head import VocabularyHead
from sglang_mtpc.weight_updates import warn_of_update

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
    processors = _logits_processors(model)
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


def widen(model: nn.Module, tokens: Tensor, vocab_size: int) -> None:
    """Let a draft model with a vocabulary of its own, as of EAGLE-3, return logits of the target's tokens.

    Args:
        model: SGLang's draft model.
        tokens: The target's token for each token of the model's head, int64 [size].
        vocab_size: Tokens of the target's vocabulary.
    """
    for processor in _logits_processors(model):
        own_logits = processor._get_logits

        def get_logits(*args: Any, _own_logits: Any = own_logits, **options: Any) -> Tensor:
            logits: Tensor = _own_logits(*args, **options)
            wide = logits.new_full((len(logits), vocab_size), LOWEST, dtype=torch.float32)
            return wide.index_copy_(1, tokens, logits.float())

        processor._get_logits = get_logits


def _logits_processors(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, LogitsProcessor)]


class NativeDraftWorker(EagleDraftWorker):
    """SGLang's draft worker, with draft vocabularies and prompt lookup from ``--speculative-token-map``.

    Attributes:
        head: Head of the draft vocabularies; None: the whole vocabulary is drafted.
        lookup: Prompt lookup; None: it is disabled.
        requests: Draft vocabularies of the batch; None: all requests use one.
        metrics: Counts drafts; None: metrics are disabled.
        lengthen: Enters SGLang's runtime state for longer drafts, until the next step begins, with a batch of this many
            requests.
    """

    head: VocabularyHead | None = None
    lookup: NativePromptLookup | None = None
    requests: SGLangRequestVocabularies | None = None
    metrics: DraftMetrics | None = None
    lengthen: Callable[[int], None]

    def init_token_map(self) -> None:
        """Use no token map of SGLang's: tokens keep their ids, so draft distributions remain usable."""
        self.hot_token_id: Tensor | None = None

    def init_lm_head(self) -> None:
        """Share the target's head as SGLang does, then restrict it to the draft vocabularies, and begin prompt lookup.

        Raises:
            MTPCError: See `open_vocabularies` and `restrict`.
        """
        super().init_lm_head()
        spec, config = get_spec(), self.target_worker.model_config
        folder = Path(spec.speculative_draft_model_path or config.model_path)
        check_ranks(folder)
        device, rows = torch.device(self.device), len(self.req_to_token_pool.req_to_token)
        if self.hot_token_id is not None:
            widen(self.draft_runner.model, self.hot_token_id, config.vocab_size)
            self.hot_token_id = None
        values = vocabulary_values(spec.speculative_token_map)
        vocabularies = open_vocabularies(values, folder, config.vocab_size, config.model_path)
        if vocabularies is not None and device.type != "cpu":
            vocabularies = vocabularies.union()  # in CUDA graphs, see `DraftVocabularies`
        self.metrics = DraftMetrics.of_served(None, vocabularies, spec.speculative_num_steps)
        if copies(spec.speculative_token_map):
            drafts, seed = spec.speculative_num_steps, self.target_worker.random_seed
            settings = read(spec.speculative_token_map)
            lengths = drafts, settings.copy_tokens or drafts, settings.step_cost
            self.lookup = NativePromptLookup(folder, *lengths, rows, seed, device, config.vocab_size)
            logger.info("%s: prompt lookup is mixed into every draft.", type(self.draft_runner.model).__name__)
        if vocabularies is None:
            return
        head = getattr(self.target_worker.model_runner.model, "lm_head", None)
        self.head = restrict(self.draft_runner.model, vocabularies, config.vocab_size, head, config.dtype)
        if vocabularies.detector is not None:
            self.requests = SGLangRequestVocabularies(vocabularies.detector, rows, device)
            self.requests.tally = None if self.metrics is None else self.metrics.tally

    def draft(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Draft, with prompt lookup in the first token as well, and return SGLang's ``EagleVerifyInput``."""
        draft_input = batch.spec_info
        if self.lookup is not None:
            self.lookup.draw_first(batch)
        built = super().draft(batch, *args, **options)
        if self.lookup is not None and self.lookup.is_longer:
            built = self._longer(batch, draft_input, built)
        keep_limits(built, batch.reqs, self.topk == 1)
        return built

    def _longer(self, batch: Any, draft_input: Any, built: Any) -> Any:
        """Return SGLang's ``EagleVerifyInput`` of the same drafts, continued with copied tokens."""
        assert self.lookup is not None
        drafts = Draft(built.draft_token.view(len(batch.reqs), -1)[:, 1:], built.draft_probs)
        longer, longest = self.lookup.continued(drafts), self.lookup.longest
        self.lengthen(len(batch.reqs))
        if self.metrics is not None:
            self.metrics.set_length(longest)
        return verify.verify_input(batch, draft_input, longer, DraftShape(longest, 1, longest), self.target_worker)

    def _capture_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """Capture SGLang's draft loop only with the drafter's own number of tokens: no longer draft runs it."""
        is_longer = self.lookup is not None and self.speculative_num_steps > self.lookup.drafts
        with override_sizes(self, steps=1 if is_longer else None):  # 1: no loop
            super()._capture_cuda_graphs(*args, **options)

    def draft_forward(self, forward_batch: Any, *args: Any, **options: Any) -> Any:
        """Run SGLang's draft loop, which CUDA graphs capture, on logits of the mixture."""
        if self.lookup is None:
            return super().draft_forward(forward_batch, *args, **options)
        with self.lookup.mixing(forward_batch).in_loop(self.draft_runner):
            return super().draft_forward(forward_batch, *args, **options)


class NativeWorker(EagleWorker):
    """SGLang's worker for its own draft layers, as of ``NEXTN``, ``EAGLE`` and ``EAGLE3``."""

    draft_worker_class = NativeDraftWorker

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if torch.device(self.device).type == "cpu":
            verify.install()

    def init_cuda_graphs(self, *args: Any, **options: Any) -> None:
        """Capture SGLang's CUDA graphs, also those of longer drafts, and time decoding steps on a CPU."""
        lookup, runner = self._draft_worker.lookup, self.target_worker.model_runner
        if lookup is not None and lookup.longest > lookup.drafts:
            self.adaptive_controller = AdaptiveController(self, LongerCopies(lookup))
            self._draft_worker.lengthen = self.activate_step_by_batch
        super().init_cuda_graphs(*args, **options)
        if lookup is not None:
            lookup.lengths.time_steps(make_dummy_step(runner), None, get_schedule().max_running_requests)

    def weight_update_runners(self) -> list[tuple[str, Any]]:
        """Return SGLang's runners, whose draft vocabularies keep the rows of the target's output head."""
        if self._draft_worker.head is not None:
            warn_of_update("draft vocabularies")
        runners: list[tuple[str, Any]] = super().weight_update_runners()
        return runners

    def forward_batch_generation(self, batch: Any, *args: Any, **options: Any) -> Any:
        """Run one step of the scheduler and return SGLang's ``GenerationBatchResult``."""
        worker = self._draft_worker
        if worker.lookup is not None:
            worker.lookup.is_longer = False  # SGLang leaves the state of a longer draft before it drafts again
        if worker.requests is not None:
            worker.head.numbers = worker.requests.numbers[: len(batch.reqs)]  # `choose` writes into this memory
        return super().forward_batch_generation(batch, *args, **options)


class NativeStandaloneDraftWorker(NativeDraftWorker, StandaloneDraftWorker):
    """SGLang's draft worker of whole draft models, which share nothing with the target."""


class NativeStandaloneWorker(NativeWorker, StandaloneWorkerV2):
    """SGLang's worker for whole draft models, ``STANDALONE``."""

    draft_worker_class = NativeStandaloneDraftWorker
    replaced_class = StandaloneDraftWorker


# Workers of this project by those of SGLang that they extend.
WORKERS: dict[type, type] = {EAGLEWorkerV2: NativeWorker, StandaloneWorkerV2: NativeStandaloneWorker}
