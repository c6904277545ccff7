"""The section of ours in vLLM's additional-config: settings of the draft vocabulary, and of copying."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.methods import DrafterConfig
from mtpc.prompt_lookup.match import REACH
from mtpc.vocabulary.settings import VocabularyChoice

SECTION = "mtpc"
COPY, ADAPTIVE, COST, STORE, TENANT = "copy", "adaptive", "step_cost", "store", "tenant"


class Section(VocabularyChoice):
    """The whole section.

    Attributes:
        copy_: Whether prompt lookup drafts as well; None: where the drafter does nothing else.
        adaptive: Whether drafts are as long as is worth it, on the V1 runner; otherwise all are as long as can be.
        step_cost: What steps cost; None: timed while the engine starts.
        store: Tokens of earlier answers of the same tenant that may be copied as well; a request names its tenant in
            ``vllm_xargs``.  None: of no other request.
    """

    copy_: Annotated[bool | None, Field(alias=COPY)] = None
    adaptive: bool = True
    step_cost: StepCost | None = None
    store: Annotated[int, Field(ge=1, le=REACH)] | None = None


class Additional(BaseModel):
    """vLLM's additional-config, of which all else is other plugins'."""

    mtpc: Section = Section()


def vocabulary_values(additional: Any) -> dict[str, Any]:
    """The settings of the draft vocabulary.

    Errors: `MTPCError`, see `section`.
    """
    return section(additional).model_dump(include=set(VocabularyChoice.model_fields), exclude_unset=True)


def copies(additional: Any, always: bool = False) -> bool:
    """Return whether prompt lookup drafts as well.

    Args:
        additional: vLLM's additional-config.
        always: Whether the drafter does nothing else.

    Raises:
        MTPCError: Where it does not say so clearly.
    """
    said, name = section(additional), f"{SECTION!r} in additional-config"
    copy = always if said.copy_ is None else said.copy_
    if always and not copy:
        raise MTPCError(f"the {COPY!r} of {name} is false, but the drafter does nothing else.")
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


def v1_copies(additional: Any, config: DrafterConfig, async_scheduling: bool) -> bool:
    """Return whether prompt lookup drafts as well on the V1 runner, from tokens on the host.

    Args:
        additional: vLLM's additional-config.
        config: Of the drafter.
        async_scheduling: Whether steps overlap.

    Raises:
        MTPCError: Where they do: the host's tokens are then a step behind.
    """
    copy = copies(additional, not config.own_drafts)
    for key, needed in ((COPY, copy), (COST, COST in section(additional).model_fields_set)):
        if needed and async_scheduling:
            raise MTPCError(f"additional-config {SECTION}.{key} requires --no-async-scheduling on the V1 model runner.")
    return copy


def v2_copies(additional: Any, config: DrafterConfig, drafts: int, folder: Path) -> bool:
    """Return whether prompt lookup drafts as well on Model Runner V2, where all drafts have K tokens.

    Raises:
        MTPCError: For what only the V1 runner does, where drafts differ in length and tokens are on the host.
    """
    copy = copies(additional, not config.own_drafts)
    v1 = "only the V1 model runner (VLLM_USE_V2_MODEL_RUNNER=0)"
    said = section(additional)
    given = said.model_fields_set - ({ADAPTIVE} if not said.adaptive else set())
    for key, what in (
        (COST, "drafts of any length"),
        (ADAPTIVE, "drafts of any length"),
        (STORE, "answers on the host"),
    ):
        if key in given:
            raise MTPCError(f"the {key!r} of {SECTION!r} in additional-config is for {what}: {v1} has them.")
    if copy and 0 < config.own_drafts < drafts:
        raise MTPCError(
            f"num_speculative_tokens is {drafts}, but {folder} drafts {config.own_drafts}: {v1} copies more than that."
        )
    return copy
