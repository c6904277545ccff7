"""What vLLM's settings must be where one of its own drafters is to draft from draft vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.vocabulary.settings import VocabularyChoice, open_vocabularies
from vllm_mtpc import integration_points
from vllm_mtpc.additional import SECTION, Section, section, vocabulary_values
from vllm_mtpc.settings import check_verification, target_of

METHODS = ("mtp", "eagle", "eagle3", "draft_model")
# Settings under which a draft is not made of one row of plain logits for each request, and what each must be.
FIXED = {
    "disable_padded_drafter_batch": False,
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
    "draft_lm_head_quantization": None,  # from vLLM 0.33 on
}


def check_native(speculative: Any, target: Any, additional: Any, pipeline_stages: int = 1) -> None:
    """Check our section of additional-config against a drafter that is not ours; without the section all passes.

    speculative: vLLM's ``SpeculativeConfig``, complete; None: nothing drafts.  target: its ``ModelConfig`` of the
    target.

    Errors: `MTPCError` with one sentence.
    """
    said = section(additional)
    if speculative is None or not said.model_fields_set:
        return
    name, method = f"{SECTION!r} in additional-config", speculative.method
    for key in Section.model_fields.keys() - VocabularyChoice.model_fields.keys():
        if key in said.model_fields_set:
            raise MTPCError(f"the {key.rstrip('_')!r} of {name} is for drafters of this project, not for {method!r}.")
    if method not in METHODS or speculative.use_gemma4_mtp():
        raise MTPCError(f"the {name} is for the methods {', '.join(METHODS)} with a head, not for {method!r}.")
    vocab_size, draft = target_of(target).vocab_size, speculative.draft_model_config
    if open_vocabularies(vocabulary_values(additional), Path(draft.model), vocab_size) is None:
        return
    for key, expected in FIXED.items():
        if (value := getattr(speculative, key, expected)) != expected:
            raise MTPCError(f"{key} is {value!r}, but with a draft vocabulary it must be {expected!r}.")
    check_verification(speculative.rejection_sample_method)
    own = getattr(draft.hf_config, "draft_vocab_size", None)
    if own not in (None, vocab_size):
        raise MTPCError(
            f"{draft.model} drafts from {own} tokens of its own (draft_vocab_size), so the {name} must be left out."
        )
    if pipeline_stages > 1:
        raise MTPCError("a draft vocabulary needs the target's head, so pipeline_parallel_size must be 1.")
    for problem in integration_points.problems(native=True):
        raise MTPCError(problem)
