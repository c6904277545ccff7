"""Checks vLLM's settings for draft vocabularies and prompt lookup with one of vLLM's own drafters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.prompt_lookup.table import CopyTable
from mtpc.serving.settings import ADAPTIVE, COPY, COST
from mtpc.vocabulary.settings import open_vocabularies
from mtpc.vocabulary.vocabularies import DraftVocabularies
from vllm_mtpc import integration_points
from vllm_mtpc.additional_config import (
    SECTION,
    draft_settings,
    uses_prompt_lookup,
    v1_uses_prompt_lookup,
    v2_uses_prompt_lookup,
    vocabulary_values,
)
from vllm_mtpc.dispatch import serves
from vllm_mtpc.settings import check_verification, target_of

METHODS = ("mtp", "eagle", "eagle3", "draft_model")
# Settings with which a draft token does not come from one row of logits per request, and the value each must have.
FIXED = {
    "disable_padded_drafter_batch": False,
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
}
OWN_HEAD = {"draft_lm_head_quantization": None}  # the same with a draft vocabulary; from vLLM 0.33 on


def check_native(speculative: Any, target: Any, additional: Any, pipeline_stages: int = 1) -> None:
    """Check the section ``mtpc`` of additional-config for one of vLLM's own drafters.

    Args:
        speculative: vLLM's complete ``SpeculativeConfig``; None without speculative decoding.
        target: vLLM's ``ModelConfig`` of the target.
        additional: vLLM's additional-config; without the section everything passes.
        pipeline_stages: ``pipeline_parallel_size``.

    Raises:
        MTPCError: A setting is wrong, or the installed vLLM lacks an integration point.
    """
    settings = draft_settings(additional)
    if speculative is None or not settings.model_fields_set:
        return
    name, method, copies = f"additional-config {SECTION}", speculative.method, uses_prompt_lookup(additional)
    if method not in METHODS or speculative.use_gemma4_mtp():
        raise MTPCError(f"{name} is for the methods {', '.join(METHODS)} with an output head, not for {method!r}.")
    for key in (ADAPTIVE, COST):
        if key in settings.model_fields_set and not copies:
            raise MTPCError(f"{name}.{key} requires prompt lookup with {method!r}: add {COPY!r}: true or remove it.")
    vocab_size, draft = target_of(target).vocab_size, speculative.draft_model_config
    restricts = open_vocabularies(vocabulary_values(additional), Path(draft.model), vocab_size) is not None
    if not restricts and not copies:
        return
    what = "a draft vocabulary" if restricts else "prompt lookup"
    for key, expected in (FIXED | OWN_HEAD if restricts else FIXED).items():
        if (value := getattr(speculative, key, expected)) != expected:
            raise MTPCError(f"{key} is {value!r}, but with {what} it must be {expected!r}.")
    check_verification(speculative.rejection_sample_method)
    draft_vocab_size = getattr(draft.hf_config, "draft_vocab_size", None)
    if restricts and draft_vocab_size not in (None, vocab_size):
        raise MTPCError(
            f"{draft.model} has its own draft vocabulary (draft_vocab_size is {draft_vocab_size}), so {name} must "
            f"not set another one."
        )
    if copies:
        _check_copies(draft, vocab_size)
    if pipeline_stages > 1:
        raise MTPCError(f"pipeline_parallel_size is {pipeline_stages}, but with {what} it must be 1.")
    for problem in integration_points.problems(native=True, prompt_lookup=copies):
        raise MTPCError(problem)


def _check_copies(draft: Any, vocab_size: int) -> None:
    """Check that prompt lookup can propose the target's tokens to a drafter, and its table."""
    if (size := draft.get_vocab_size()) != vocab_size:
        raise MTPCError(
            f"additional-config {SECTION}.{COPY} requires a drafter with the target's {vocab_size} tokens, but "
            f"{draft.model} has {size}: remove it."
        )
    CopyTable.of(Path(draft.model))


def check_native_runner(vllm_config: Any) -> None:
    """Check what vLLM decides after `check_native`: the model runner and asynchronous scheduling.

    Args:
        vllm_config: vLLM's complete ``VllmConfig``; one without prompt lookup or with a drafter of this project passes.

    Raises:
        MTPCError: A setting of additional-config does not fit the chosen runner or scheduling.
    """
    speculative, additional = vllm_config.speculative_config, vllm_config.additional_config
    if speculative is None or serves(vllm_config) or not uses_prompt_lookup(additional):
        return
    drafts, folder = speculative.num_speculative_tokens, Path(speculative.draft_model_config.model)
    if vllm_config.use_v2_model_runner:
        v2_uses_prompt_lookup(additional, drafts, drafts, folder)
    else:
        async_scheduling = vllm_config.scheduler_config.async_scheduling
        v1_uses_prompt_lookup(additional, drafts, async_scheduling, integration_points.on_cpu())


def native_vocabularies(vllm_config: Any) -> DraftVocabularies | None:
    """Open the draft vocabularies for vLLM's own drafter.

    Args:
        vllm_config: vLLM's ``VllmConfig``.

    Returns:
        The vocabularies; None if there are none.

    Raises:
        MTPCError: See `open_vocabularies`.
    """
    values, target = vocabulary_values(vllm_config.additional_config), vllm_config.model_config
    folder = Path(vllm_config.speculative_config.draft_model_config.model)
    return open_vocabularies(values, folder, target_of(target).vocab_size, target.tokenizer)
