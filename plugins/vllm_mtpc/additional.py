"""The section of ours in vLLM's additional-config: settings of the draft vocabulary, and of copying."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mtpc.draft_length.cost import MEASURED, StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, declared
from mtpc.methods import DrafterConfig, Family
from mtpc.prompt_lookup.match import REACH
from mtpc.vocabulary.settings import VocabularyChoice

SECTION = "mtpc"
COPY, COST, STORE, TENANT = "copy", "step_cost", "store", "tenant"


class CopySettings(Strict):
    """How drafts are copied from the request's own text.

    step_cost: what steps take.  store: tokens of earlier answers of the same tenant that may be copied as well; a
    request names its tenant in ``vllm_xargs``.  None: of no other request.
    """

    step_cost: StepCost = MEASURED
    store: Annotated[int, Field(ge=1, le=REACH)] | None = None


class Section(VocabularyChoice, CopySettings):
    """The whole section.  copy_: whether drafts are copied; None: where the drafter does nothing else."""

    copy_: Annotated[bool | None, Field(alias=COPY)] = None


class Additional(BaseModel):
    """vLLM's additional-config, of which all else is other plugins'."""

    mtpc: Section = Section()


def vocabulary_values(additional: Any) -> dict[str, Any]:
    """The settings of the draft vocabulary.

    Errors: `MTPCError`, see `section`.
    """
    return section(additional).model_dump(include=set(VocabularyChoice.model_fields), exclude_unset=True)


def copying_settings(additional: Any, always: bool = False) -> CopySettings | None:
    """How drafts are copied from the request's own text; None: they are not.

    always: whether the drafter does nothing else.

    Errors: `MTPCError` where it does not say so clearly.
    """
    said, name = section(additional), f"{SECTION!r} in additional-config"
    copy = always if said.copy_ is None else said.copy_
    if always and not copy:
        raise MTPCError(f"the {COPY!r} of {name} is false, but the drafter does nothing else.")
    given = [key for key in CopySettings.model_fields if key in said.model_fields_set]
    if given and not copy:
        raise MTPCError(f"the {given[0]!r} of {name} is for copying: add {COPY!r}.")
    return said if copy else None


def section(additional: Any) -> Section:
    """Our section of vLLM's additional-config, which may also be an object of vLLM's ``SupportsHash``.

    Errors: `MTPCError` for what it does not allow.
    """
    if additional is None or hasattr(additional, "compute_hash"):
        return Section()
    return declared(Additional, additional, "additional-config").mtpc


def host_copying(additional: Any, family: Family, async_scheduling: bool) -> CopySettings | None:
    """How drafts are copied on the V1 runner, from texts on the host; None: they are not.

    async_scheduling: whether steps overlap.

    Errors: `MTPCError` if they do: the texts are then a step behind.
    """
    settings = copying_settings(additional, family.copies)
    if settings is not None and async_scheduling:
        raise MTPCError(f"additional-config {SECTION}.{COPY} requires --no-async-scheduling on the V1 model runner.")
    return settings


def static_copying(additional: Any, family: Family, config: DrafterConfig, drafts: int, folder: Path) -> bool:
    """Whether drafts are also copied on Model Runner V2, where they are no longer than the drafter's own.

    Errors: `MTPCError` for what only the V1 runner does, where drafts differ in length and texts are on the host.
    """
    if copying_settings(additional, family.copies) is None:
        return False
    v1 = "only the V1 model runner (VLLM_USE_V2_MODEL_RUNNER=0)"
    for key, what in ((COST, "drafts of any length"), (STORE, "answers on the host")):
        if key in section(additional).model_fields_set:
            raise MTPCError(f"the {key!r} of {SECTION!r} in additional-config is for {what}: {v1} has them.")
    if not family.copies and drafts > config.num_drafts:
        raise MTPCError(
            f"num_speculative_tokens is {drafts}, but {folder} drafts {config.num_drafts}: {v1} copies more than that."
        )
    return True
