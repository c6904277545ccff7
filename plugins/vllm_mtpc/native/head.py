"""Restricts the output head of vLLM's own draft models to draft vocabularies, without changing the models."""

from __future__ import annotations

import logging
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.shard import head_shard
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc.ranks import head_ranks
from vllm_mtpc.settings import target_of

logger = logging.getLogger(f"vllm.{__name__}")


class NativeHead:
    """Computes a draft model's logits from the draft vocabulary of each request.

    All of vLLM's draft models compute logits with a ``LogitsProcessor``.  This class replaces only its product with the
    output head.  Tokens outside the draft vocabulary get the logit -inf, so vLLM never draws them and states
    probability 0 for them.  Rejection sampling stays lossless.

    Protocol: create it once vLLM has assigned the output head; set `numbers` before each step.

    Attributes:
        numbers: int64 [B], the draft vocabulary of each request, on the host, or on the device if shapes are static.
            None for the first vocabulary, or for the union of all if shapes are static.
        draft_logits: Computes the logits.

    Args:
        model: vLLM's draft model.
        vocabularies: The draft vocabularies.
        vocab_size: The target's.
        static: Whether shapes must depend on the batch size alone, as in a CUDA graph; see `UnionLogits`.

    Raises:
        MTPCError: The model has not exactly one output head over the target's vocabulary, or it cannot be read, see
            `DraftLogits`.
    """

    numbers: Tensor | None = None

    def __init__(self, model: nn.Module, vocabularies: DraftVocabularies, vocab_size: int, static: bool) -> None:
        head, modules = getattr(model, "lm_head", None), list(model.modules())
        processors = [module for module in modules if isinstance(module, LogitsProcessor)]
        # The embedding may be the head as well, and each layer may have a head.
        heads = [module for name, module in model.named_modules() if name.endswith(("lm_head", ".head"))]
        weights = {id(module if (weight := getattr(module, "weight", None)) is None else weight) for module in heads}
        shard = None
        if processors and len(weights) == 1 and _covers(head, vocab_size):
            shard = head_shard(head, processors[0].head_dtype)
        if shard is None:
            raise MTPCError(
                f"a draft vocabulary needs one output head over the target's {vocab_size} tokens that has no bias, "
                f"unlike the one of {type(model).__name__}; set its language to 'none'."
            )
        self.draft_logits: DraftLogits
        if static:
            self.draft_logits = UnionLogits(vocabularies, shard, head_ranks())
        else:
            whole = partial(processors[0]._get_logits, lm_head=head, embedding_bias=None)
            self.draft_logits = DraftLogits(vocabularies, shard, whole, head_ranks())
        for processor in processors:
            processor.forward = partial(self._logits, _after_the_head(processor))

    def _logits(self, finish: LogitsProcessor, lm_head: nn.Module, hidden_states: Tensor, *_: None) -> Tensor:
        """Replaces ``LogitsProcessor.forward``: logits [n, V] of states [n, d]."""
        logits = self.draft_logits(hidden_states, self.numbers).to(finish.head_dtype)
        finished: Tensor = finish(lm_head, logits)
        return finished if finish.soft_cap is None else finished.masked_fill(logits.isneginf(), -torch.inf)


def _covers(head: nn.Module | None, vocab_size: int) -> bool:
    """Return whether a head has a row for each token, and no bias."""
    if not isinstance(head, VocabParallelEmbedding) or head.org_vocab_size != vocab_size:
        return False
    return getattr(head, "bias", None) is None


def _after_the_head(processor: LogitsProcessor) -> LogitsProcessor:
    """Return a copy of the processor that takes logits as input."""
    finish = copy(processor)
    finish.logits_as_input = True
    return finish


def restricted_head(drafter: Any, vocabularies: DraftVocabularies, static: bool) -> NativeHead:
    """Restrict the output head of a loaded drafter.

    Args:
        drafter: vLLM's proposer or speculator.
        vocabularies: The draft vocabularies.
        static: See `NativeHead`.

    Returns:
        The restricted head.

    Raises:
        MTPCError: See `NativeHead`.
    """
    head = NativeHead(drafter.model, vocabularies, target_of(drafter.vllm_config.model_config).vocab_size, static)
    logger.info("%s: %s.", type(drafter.model).__name__, head.draft_logits.summary)
    return head
