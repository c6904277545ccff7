"""Checks vLLM's settings for draft vocabularies with one of vLLM's own drafters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.vocabulary.settings import VocabularyChoice, open_vocabularies
from vllm_mtpc import integration_points
from vllm_mtpc.additional_config import SECTION, VLLMDraftSettings, draft_settings, vocabulary_values
from vllm_mtpc.settings import check_verification, target_of

METHODS = ("mtp", "eagle", "eagle3", "draft_model")
# Settings with which a draft token does not come from one row of logits per request, and the value each must have.
FIXED = {
    "disable_padded_drafter_batch": False,
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
    "draft_lm_head_quantization": None,  # from vLLM 0.33 on
}


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
    name, method = f"additional-config {SECTION}", speculative.method
    for key in VLLMDraftSettings.model_fields.keys() - VocabularyChoice.model_fields.keys():
        if key in settings.model_fields_set:
            raise MTPCError(f"{name}.{key.rstrip('_')} is for drafters of this project, not for {method!r}: remove it.")
    if method not in METHODS or speculative.use_gemma4_mtp():
        raise MTPCError(f"{name} is for the methods {', '.join(METHODS)} with an output head, not for {method!r}.")
    vocab_size, draft = target_of(target).vocab_size, speculative.draft_model_config
    if open_vocabularies(vocabulary_values(additional), Path(draft.model), vocab_size) is None:
        return
    for key, expected in FIXED.items():
        if (value := getattr(speculative, key, expected)) != expected:
            raise MTPCError(f"{key} is {value!r}, but with a draft vocabulary it must be {expected!r}.")
    check_verification(speculative.rejection_sample_method)
    draft_vocab_size = getattr(draft.hf_config, "draft_vocab_size", None)
    if draft_vocab_size not in (None, vocab_size):
        raise MTPCError(
            f"{draft.model} has its own draft vocabulary (draft_vocab_size is {draft_vocab_size}), so {name} must be "
            f"left out."
        )
    if pipeline_stages > 1:
        raise MTPCError(
            f"pipeline_parallel_size must be 1, not {pipeline_stages}: a draft vocabulary needs the target's head."
        )
    for problem in integration_points.problems(native=True):
        raise MTPCError(problem)
