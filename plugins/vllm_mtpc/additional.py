"""The section of ours in vLLM's additional-config: settings of the draft vocabulary, and of copying."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.methods import DrafterConfig
from mtpc.prompt_lookup.match import REACH
from mtpc.serving.settings import ADAPTIVE, COPY, COST, DraftSettings

SECTION = "mtpc"
STORE, TENANT = "store", "tenant"


class Section(DraftSettings):
    """The whole section.

    Attributes:
        store: Tokens of earlier outputs of the same tenant that prompt lookup may copy as well (V1 runner).  A request
            names its tenant in ``vllm_xargs``; without this setting nothing is copied from other requests.
    """

    store: Annotated[int, Field(ge=1, le=REACH)] | None = None


class Additional(BaseModel):
    """vLLM's additional-config, of which all else is other plugins'."""

    mtpc: Section = Section()


def vocabulary_values(additional: Any) -> dict[str, Any]:
    """The settings of the draft vocabulary.

    Errors: `MTPCError`, see `section`.
    """
    return section(additional).vocabulary_values


def copies(additional: Any, always: bool = False) -> bool:
    """Return whether prompt lookup drafts as well.

    Args:
        additional: vLLM's additional-config.
        always: Whether the drafter does nothing else.

    Raises:
        MTPCError: Where it does not say so clearly.
    """
    said, name = section(additional), f"{SECTION!r} in additional-config"
    copy = said.copies(always, name)
    if STORE in said.model_fields_set and not copy:
        raise MTPCError(f"the {STORE!r} of {name} is for copying: add {COPY!r}.")
    return copy


def section(additional: Any) -> Section:
    """Our section of vLLM's additional-config, which may also be an object of vLLM's ``SupportsHash``.

    Errors: `MTPCError` for what it does not allow.
    """
    if additional is None or hasattr(additional, "compute_hash"):
        return Section()
    return declared(Additional, additional, "additional-config").mtpc


def v1_copies(additional: Any, config: DrafterConfig, async_scheduling: bool, on_cpu: bool) -> bool:
    """Return whether prompt lookup drafts as well on the V1 runner, from tokens on the host.

    Args:
        additional: vLLM's additional-config.
        config: Of the drafter.
        async_scheduling: Whether steps overlap.
        on_cpu: Whether the target runs there: then drafts of every drafter may have any length.

    Raises:
        MTPCError: Where steps overlap (the host's tokens are then a step behind), or drafts all have K tokens and a
            setting is for others.
    """
    copy, given = copies(additional, not config.own_drafts), _about_length(additional)
    for key, needed in ((COPY, copy), (COST, COST in given)):
        if needed and async_scheduling:
            raise MTPCError(f"additional-config {SECTION}.{key} requires --no-async-scheduling on the V1 model runner.")
    if given and not (copy or on_cpu):
        name = f"{SECTION!r} in additional-config"
        raise MTPCError(f"the {min(given)!r} of {name} is for drafts of any length: on a GPU add {COPY!r}.")
    return copy


def _about_length(additional: Any) -> set[str]:
    """The keys that say how long drafts are, unless all are to be as long as can be."""
    said = section(additional)
    return said.model_fields_set & ({COST, ADAPTIVE} if said.adaptive else {COST})


def v2_copies(additional: Any, config: DrafterConfig, drafts: int, folder: Path) -> bool:
    """Return whether prompt lookup drafts as well on Model Runner V2, where all drafts have K tokens.

    Raises:
        MTPCError: For what only the V1 runner does, where drafts differ in length and tokens are on the host.
    """
    copy = copies(additional, not config.own_drafts)
    v1 = "only the V1 model runner (VLLM_USE_V2_MODEL_RUNNER=0)"
    wrong = dict.fromkeys(sorted(_about_length(additional)), "drafts of any length")
    if STORE in section(additional).model_fields_set:
        wrong[STORE] = "answers on the host"
    for key, what in wrong.items():
        raise MTPCError(f"the {key!r} of {SECTION!r} in additional-config is for {what}: {v1} has them.")
    if copy and 0 < config.own_drafts < drafts:
        raise MTPCError(
            f"num_speculative_tokens is {drafts}, but {folder} drafts {config.own_drafts}: {v1} copies more than that."
        )
    return copy
