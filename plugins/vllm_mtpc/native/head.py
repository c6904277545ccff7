"""The output head of a draft model of vLLM's own, restricted to draft vocabularies; the model itself stays as it is."""

from __future__ import annotations

from copy import copy
from functools import partial

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import plain_weight
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc.ranks import head_ranks


class NativeHead:
    """Logits of a draft model, each request's from its own draft vocabulary, wherever the model asks for logits.

    All of vLLM's draft models make them with a ``LogitsProcessor``: what that does after the product with the head, it
    still does.  A token that cannot be drafted has the logit -inf, so vLLM draws none, and where it states what its
    drafts were drawn from, it states 0: rejection sampling is then as lossless as before.

    model: its head is shared already.  vocab_size: of the target.  static: whether shapes must be the same for all
    batches of a size, as in a CUDA graph, see `UnionLogits`.  numbers: int64 [B], of the draft vocabularies of the
    coming logits, on the host, or where shapes are static on the device; None: the first, or all of them, for all.

    Errors: `MTPCError` for a model with another head than one of all of the target's tokens, or a quantised one.
    """

    numbers: Tensor | None = None

    def __init__(self, model: nn.Module, vocabularies: DraftVocabularies, vocab_size: int, static: bool) -> None:
        head, modules = getattr(model, "lm_head", None), list(model.modules())
        processors = [module for module in modules if isinstance(module, LogitsProcessor)]
        # An embedding may be the head as well; layers of a model may have heads of their own.
        heads = [module for name, module in model.named_modules() if name.endswith(("lm_head", ".head"))]
        weights = {id(getattr(module, "weight", None)) for module in heads}
        if not processors or len(weights) > 1 or not _plain(head, vocab_size):
            raise MTPCError(
                f"a draft vocabulary needs one output head over the target's {vocab_size} tokens that is not quantised "
                f"and adds nothing, which {type(model).__name__} has not; set its language to 'none'."
            )
        shard: Tensor = head.weight.data  # type: ignore[union-attr]
        self.draft_logits: DraftLogits
        if static:
            self.draft_logits = UnionLogits(vocabularies, shard, head_ranks())
        else:
            whole = partial(processors[0]._get_logits, lm_head=head, embedding_bias=None)
            self.draft_logits = DraftLogits(vocabularies, shard, whole, head_ranks())
        for processor in processors:
            processor.forward = partial(self._logits, _after_the_head(processor))

    def _logits(self, finish: LogitsProcessor, lm_head: nn.Module, hidden_states: Tensor, *_: None) -> Tensor:
        """Logits [n, V] of states [n, d], in the place of ``LogitsProcessor.forward``."""
        logits = self.draft_logits(hidden_states, self.numbers).to(finish.head_dtype)
        made: Tensor = finish(lm_head, logits)
        return made if finish.soft_cap is None else made.masked_fill(logits.isneginf(), -torch.inf)


def _plain(head: nn.Module | None, vocab_size: int) -> bool:
    """Whether a head has a row of plain numbers for each of so many tokens, and nothing else."""
    if not isinstance(head, VocabParallelEmbedding) or head.org_vocab_size != vocab_size:
        return False
    return getattr(head, "bias", None) is None and plain_weight(head, head.embedding_dim) is not None


def _after_the_head(processor: LogitsProcessor) -> LogitsProcessor:
    """What a processor does with logits that are there."""
    finish = copy(processor)
    finish.logits_as_input = True
    return finish
