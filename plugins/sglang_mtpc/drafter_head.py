"""The output head that a drafter drafts through, with the draft vocabularies of the batch's requests."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mtpc.autoregressive.part import DrafterTokens
from mtpc.errors import MTPCError
from mtpc.methods import DrafterConfig
from mtpc.target_head.draft_logits import DraftHead, DraftLogits
from mtpc.target_head.drafter_head import DrafterHeadLogits
from mtpc.target_head.shard import QuantizedShard, head_shard, whole_head
from mtpc.target_head.shared import Head
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc.ranks import head_ranks
from sglang_mtpc.vocabulary_head import VocabularyHead


class DrafterHead:
    """The target's output head, whole or its rows of draft vocabularies, or rows that the drafter brings.

    Args:
        lm_head: SGLang's output head module of the target.
        config: Configuration of the drafter.
        dtype: Dtype of the drafter's states.
        vocabularies: Draft vocabularies; None: the whole vocabulary.
        numbers: Buffer of each request's draft vocabulary, int64 [most requests], written before each step (see
            `SGLangRequestVocabularies`); None: the first for all.
        own: Embedding and output head that an autoregressive part brings; None: it brings neither.

    Attributes:
        draft_logits: Rows of the head that are drafted from; None: the target's whole vocabulary is.

    Raises:
        MTPCError: With draft vocabularies, the target has no fitting output head, or its rows cannot be read, see
            `DraftLogits`.
    """

    draft_logits: DraftLogits | None = None

    def __init__(
        self,
        lm_head: Any,
        config: DrafterConfig,
        dtype: torch.dtype,
        vocabularies: DraftVocabularies | None,
        numbers: Tensor | None,
        own: DrafterTokens | None = None,
    ) -> None:
        self.lm_head, self.dtype, self.numbers = lm_head, dtype, numbers
        self.hidden_size, self.vocab_size = config.hidden_size, config.vocab_size
        if own is not None and own.rows is not None and own.tokens is not None:
            self.draft_logits = DrafterHeadLogits(own.rows.detach(), own.tokens, self.vocab_size, head_ranks())
        if vocabularies is not None:
            shard = self._shard()
            made = DraftLogits if shard.device.type == "cpu" else UnionLogits
            self.draft_logits = made(vocabularies, shard, ranks=head_ranks())

    def _shard(self) -> Tensor | QuantizedShard:
        """Return this rank's shard of the target's output head; raises `MTPCError` if the head has another width."""
        shard = head_shard(self.lm_head, self.dtype, self.hidden_size)
        if shard is None:
            raise MTPCError(
                f"the drafter needs an output head for states of {self.hidden_size} numbers, which the target lacks."
            )
        return shard

    @cached_property
    def whole(self) -> Head:
        """The target's output head over the whole vocabulary."""
        return DraftHead(whole_head(self._shard(), self.vocab_size, head_ranks()), self.vocab_size)

    def head(self, requests: int) -> Head:
        """Return the head for a batch of this many requests, with equally many rows of states for each."""
        return self.whole if self.draft_logits is None else self.draft_logits.head(self._numbers(requests))

    def for_processor(self, requests: int) -> Any:
        """Return the same as `head`, for SGLang's ``LogitsProcessor``."""
        if self.draft_logits is None:
            return self.lm_head
        return VocabularyHead(self.draft_logits, self._numbers(requests))

    def _numbers(self, requests: int) -> Tensor | None:
        """Return the draft vocabularies of the batch's requests."""
        return None if self.numbers is None else self.numbers[:requests]
