"""Restricts vLLM's own drafters to draft vocabularies, on both model runners.

vLLM's draft loops stay as they are: only the output head changes (`NativeHead`).  vLLM verifies draft tokens with the
distributions that they were drawn from (``"draft_sample_method": "probabilistic"``) or as certain ones.  Both are
lossless for any choice of draft tokens.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mtpc.errors import exits_with_message
from mtpc.vocabulary.settings import open_vocabularies
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc.additional_config import vocabulary_values
from vllm_mtpc.dispatch import serves
from vllm_mtpc.settings import target_of

logger = logging.getLogger(f"vllm.{__name__}")


def install_v1(base_proposer: Any) -> None:
    """Wrap ``SpecDecodeBaseProposer.load_model``, which assigns the target's embedding and output head.

    Args:
        base_proposer: vLLM's module ``vllm.v1.spec_decode.llm_base_proposer``.
    """
    _after_loading(base_proposer.SpecDecodeBaseProposer, _restrict_v1)


def install_v2(speculator: Any) -> None:
    """Wrap ``DraftModelSpeculator.load_model``, which assigns the target's embedding and output head.

    Args:
        speculator: vLLM's module ``vllm.v1.worker.gpu.spec_decode.speculator``.
    """
    _after_loading(speculator.DraftModelSpeculator, _restrict_v2)


def _after_loading(base: Any, restrict: Any) -> None:
    load = base.load_model

    @functools.wraps(load)
    @exits_with_message
    def load_model(self: Any, target_model: nn.Module, *others: Any, **named: Any) -> None:
        load(self, target_model, *others, **named)
        vocabularies = native_vocabularies(self.vllm_config)
        if vocabularies is not None:
            restrict(self, vocabularies)

    base.load_model = load_model


def native_vocabularies(vllm_config: Any) -> DraftVocabularies | None:
    """Open the draft vocabularies for vLLM's own drafter.

    Args:
        vllm_config: vLLM's ``VllmConfig``.

    Returns:
        The vocabularies; None if there are none, or for a drafter of this project, whose model opens them.

    Raises:
        MTPCError: See `open_vocabularies`.
    """
    values = vocabulary_values(vllm_config.additional_config)
    if not values or serves(vllm_config):
        return None
    from vllm_mtpc.ranks import check_ranks

    check_ranks(vllm_config)
    folder = Path(vllm_config.speculative_config.draft_model_config.model)
    target = vllm_config.model_config
    return open_vocabularies(values, folder, target_of(target).vocab_size, target.tokenizer)


def _restrict_v1(proposer: Any, vocabularies: DraftVocabularies) -> None:
    """Restrict the head, and choose each request's vocabulary before each call of ``propose``."""
    from vllm.distributed import get_tensor_model_parallel_rank

    from vllm_mtpc import metrics
    from vllm_mtpc.v1.request_vocabularies import V1RequestVocabularies

    head = _restrict_head(proposer, vocabularies, static=False)
    counts_metrics = metrics.enabled(get_tensor_model_parallel_rank())
    request_vocabularies = V1RequestVocabularies.of(vocabularies, proposer.device, counts_metrics)
    if request_vocabularies is None:
        return
    if counts_metrics:
        metrics.export(proposer.vllm_config, None, request_vocabularies.tally)
    prepare = proposer.prepare_next_token_ids_padded

    @functools.wraps(prepare)
    def prepare_next_token_ids_padded(
        sampled_token_ids: Tensor,
        requests: dict[str, Any],
        gpu_input_batch: Any,
        discard_request_mask: Tensor,
        *others: Any,
        **named: Any,
    ) -> Any:
        given = sampled_token_ids, requests, gpu_input_batch, discard_request_mask
        head.numbers = request_vocabularies.record_and_choose(*given)
        return prepare(*given, *others, **named)

    proposer.prepare_next_token_ids_padded = prepare_next_token_ids_padded


def _restrict_v2(speculator: Any, vocabularies: DraftVocabularies) -> None:
    """Restrict the head with static shapes, and detect each request's language on the device."""
    if vocabularies.union() is None:
        return
    head = _restrict_head(speculator, vocabularies, static=True)
    if vocabularies.detector is not None:
        _follow_languages(speculator, head, vocabularies)


def _follow_languages(speculator: Any, head: Any, vocabularies: DraftVocabularies) -> None:
    """Detect the requests' languages before vLLM's speculator drafts, in a CUDA graph of its own."""
    from vllm.distributed import get_tensor_model_parallel_rank

    from vllm_mtpc import metrics
    from vllm_mtpc.v2.languages import DeviceLanguages

    counts_metrics = metrics.enabled(get_tensor_model_parallel_rank())
    languages = DeviceLanguages(vocabularies, speculator, speculator.req_states, counts_metrics)
    if counts_metrics:
        metrics.export(speculator.vllm_config, None, languages.tally)
    prepare, record = speculator.init_cudagraph_manager, speculator.capture
    draft, logits_of = speculator.propose, speculator.compute_draft_logits

    @functools.wraps(prepare)
    def init_cudagraph_manager(cudagraph_mode: Any, *others: Any, **named: Any) -> None:
        prepare(cudagraph_mode, *others, **named)
        languages.graphs.prepare(cudagraph_mode)

    @functools.wraps(record)
    def capture(*given: Any, **named: Any) -> None:
        record(*given, **named)
        speculator.idx_mapping.fill_(-1)
        languages.graphs.capture()

    @functools.wraps(draft)
    def propose(
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Tensor,
        aux_hidden_states: list[Tensor] | None,
        num_sampled: Tensor,
        num_rejected: Tensor,
        last_sampled: Tensor,
        next_prefill_tokens: Tensor,
        temperature: Tensor,
        seeds: Tensor,
        *,
        dummy_run: bool = False,
        is_profile: bool = False,
        **named: Any,
    ) -> Any:
        rows = input_batch.num_reqs
        speculator._copy_request_inputs(rows, input_batch.idx_mapping, temperature, seeds, dummy_run=dummy_run)
        languages.read(rows, num_sampled, None if dummy_run else num_rejected, eager=is_profile)
        return draft(
            input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
            num_rejected, last_sampled, next_prefill_tokens, temperature, seeds, dummy_run=dummy_run,
            is_profile=is_profile, **named,
        )  # fmt: skip

    @functools.wraps(logits_of)
    def compute_draft_logits(hidden_states: Tensor, *others: Any, **named: Any) -> Any:
        head.numbers = languages.numbers(len(hidden_states))
        return logits_of(hidden_states, *others, **named)

    speculator.init_cudagraph_manager, speculator.capture = init_cudagraph_manager, capture
    speculator.propose, speculator.compute_draft_logits = propose, compute_draft_logits


def _restrict_head(drafter: Any, vocabularies: DraftVocabularies, static: bool) -> Any:
    """Restrict the head of a loaded drafter; raises `MTPCError`, see `vllm_mtpc.native.head.NativeHead`."""
    from vllm_mtpc.native.head import NativeHead

    head = NativeHead(drafter.model, vocabularies, target_of(drafter.vllm_config.model_config).vocab_size, static)
    logger.info("%s: %s.", type(drafter.model).__name__, head.draft_logits.summary)
    return head
