"""Settings of drafting in either engine; each adapter adds those that only its engine has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.vocabulary.settings import VocabularyChoice

COPY, ADAPTIVE, COST = "copy", "adaptive", "step_cost"


class DraftSettings(VocabularyChoice):
    """Settings of drafting.

    Attributes:
        copy_: Whether to mix prompt lookup into every draft; by default only for a checkpoint that does nothing else.
        adaptive: Whether draft lengths adapt, where drafts may have any length; false: always draft K tokens.
        step_cost: Costs of decoding steps, see below; without it they are measured while the engine starts.
    """

    copy_: Annotated[bool | None, Field(alias=COPY)] = None
    adaptive: bool = True
    step_cost: StepCost | None = None

    @property
    def vocabulary_values(self) -> dict[str, Any]:
        """Settings of the draft vocabulary; see `mtpc.vocabulary.settings.open_vocabularies`."""
        return self.model_dump(include=set(VocabularyChoice.model_fields), exclude_unset=True)

    def copies(self, always: bool, name: str) -> bool:
        """Return whether prompt lookup drafts as well.

        Args:
            always: Whether the drafter does nothing else.
            name: Name of the settings, for an error.

        Raises:
            MTPCError: ``copy`` is false for a drafter that does nothing else.
        """
        if always and self.copy_ is False:
            raise MTPCError(f"the {COPY!r} of {name} must not be false: this drafter does nothing else.")
        return always if self.copy_ is None else self.copy_
