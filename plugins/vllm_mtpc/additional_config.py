"""The ``mtpc`` section of vLLM's additional-config: draft vocabulary, prompt lookup and draft length."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import keys_of, validated
from mtpc.prompt_lookup.match import REACH
from mtpc.serving.settings import ADAPTIVE, COPY, COST, DraftSettings

SECTION = "mtpc"
STORE, TENANT = "store", "tenant"


class VLLMDraftSettings(DraftSettings):
    """The whole section.

    Attributes:
        store: Number of tokens of earlier outputs of the same tenant that prompt lookup may copy as well (V1 runner).
            A request names its tenant in ``vllm_xargs``.  Without this setting nothing is copied from other requests.
    """

    store: Annotated[int, Field(ge=1, le=REACH)] | None = None


class AdditionalConfig(BaseModel):
    """vLLM's additional-config; all other keys belong to other plugins."""

    mtpc: VLLMDraftSettings = VLLMDraftSettings()


def vocabulary_values(additional: Any) -> dict[str, Any]:
    """Return the settings of the draft vocabulary.

    Args:
        additional: vLLM's additional-config.

    Returns:
        The keys that the user has set, for `mtpc.vocabulary.settings.open_vocabularies`.

    Raises:
        MTPCError: A key or value of the section is wrong.
    """
    return draft_settings(additional).vocabulary_values


def uses_prompt_lookup(additional: Any, is_default: bool = False) -> bool:
    """Return whether prompt lookup drafts as well.

    Args:
        additional: vLLM's additional-config.
        is_default: Whether the drafter only does prompt lookup, which then cannot be switched off.

    Raises:
        MTPCError: The section is wrong, switches off the drafter's only part, or sets ``store`` without ``copy``.
    """
    settings, name = draft_settings(additional), f"{SECTION!r} in additional-config"
    copy = settings.copies(is_default, name)
    if STORE in settings.model_fields_set and not copy:
        raise MTPCError(f"additional-config {SECTION}.{STORE} requires prompt lookup: add {COPY!r}: true.")
    return copy


def check_reads_text(additional: Any, folder: Path) -> None:
    """Reject ``store`` for a drafter with a text part, which does not know the tenants of requests.

    Args:
        additional: vLLM's additional-config.
        folder: The drafter checkpoint, for messages.

    Raises:
        MTPCError: It is set, or the section is wrong.
    """
    if draft_settings(additional).store is not None:
        raise MTPCError(
            f"additional-config {SECTION}.{STORE} does nothing for {folder}, which drafts from the request's text: "
            f"remove it."
        )


def draft_settings(additional: Any) -> VLLMDraftSettings:
    """Read the ``mtpc`` section.

    Args:
        additional: vLLM's additional-config: None, a mapping, or an object of vLLM's ``SupportsHash``, which has no
            section.

    Returns:
        The settings, all at their defaults if there is no section.

    Raises:
        MTPCError: A key or value of the section is wrong.
    """
    if additional is None or hasattr(additional, "compute_hash"):
        return VLLMDraftSettings()
    return validated(AdditionalConfig, additional, "additional-config").mtpc


def check_section(additional: Any) -> None:
    """Reject settings of this project where its section is missing: nothing would read them.

    Args:
        additional: vLLM's additional-config, see `draft_settings`.

    Raises:
        MTPCError: A key is one of the section's, or the section's name is misspelt.
    """
    if not isinstance(additional, Mapping) or SECTION in additional:
        return
    for key in map(str, additional):
        if key in keys_of(VLLMDraftSettings):
            raise MTPCError(f"additional-config has {key!r} at its top: write it into the section {SECTION!r}.")
        if get_close_matches(key.lower(), [SECTION], cutoff=0.75):
            raise MTPCError(f"additional-config has no section {key!r}: write {SECTION!r}.")


def v1_uses_prompt_lookup(additional: Any, own_drafts: int, async_scheduling: bool, on_cpu: bool) -> bool:
    """Return whether prompt lookup drafts as well on the V1 runner, which needs sampled tokens on the host.

    Args:
        additional: vLLM's additional-config.
        own_drafts: Draft tokens that the drafter makes itself at most; 0: it only does prompt lookup.
        async_scheduling: Whether vLLM schedules a step before the tokens of the preceding one are on the host.
        on_cpu: Whether the target runs on a CPU, where drafts of every drafter may have any length.

    Raises:
        MTPCError: A setting requires synchronous scheduling, or requires drafts of variable length where all drafts
            have K tokens.
    """
    copy, length_keys = uses_prompt_lookup(additional, not own_drafts), _draft_length_keys(additional)
    for key, needed in ((COPY, copy), (COST, COST in length_keys)):
        if needed and async_scheduling:
            raise MTPCError(f"additional-config {SECTION}.{key} requires --no-async-scheduling on the V1 model runner.")
    if length_keys and not (copy or on_cpu):
        raise MTPCError(
            f"additional-config {SECTION}.{min(length_keys)} requires drafts of variable length: on a GPU, add "
            f"{COPY!r}: true or remove it."
        )
    return copy


def _draft_length_keys(additional: Any) -> set[str]:
    """Keys of the section that require drafts of variable length."""
    settings = draft_settings(additional)
    return settings.model_fields_set & ({COST, ADAPTIVE} if settings.adaptive else {COST})


def v2_uses_prompt_lookup(additional: Any, own_drafts: int, drafts: int, folder: Path) -> bool:
    """Return whether prompt lookup drafts as well on Model Runner V2, where all drafts have K tokens.

    Args:
        additional: vLLM's additional-config.
        own_drafts: Draft tokens that the drafter makes itself at most; 0: it only does prompt lookup.
        drafts: ``num_speculative_tokens``, K.
        folder: The drafter checkpoint, for messages.

    Raises:
        MTPCError: A setting requires the V1 runner, which has drafts of variable length and keeps tokens on the host.
    """
    copy = uses_prompt_lookup(additional, not own_drafts)
    v1 = "the V1 model runner (VLLM_USE_V2_MODEL_RUNNER=0)"
    wrong = dict.fromkeys(sorted(_draft_length_keys(additional)), "has drafts of variable length")
    if STORE in draft_settings(additional).model_fields_set:
        wrong[STORE] = "keeps outputs on the host"
    for key, why in wrong.items():
        raise MTPCError(f"additional-config {SECTION}.{key} requires {v1}, which {why}.")
    if copy and 0 < own_drafts < drafts:
        raise MTPCError(
            f"num_speculative_tokens is {drafts}, but {folder} drafts {own_drafts} tokens: only {v1} continues "
            f"them with prompt lookup."
        )
    return copy
