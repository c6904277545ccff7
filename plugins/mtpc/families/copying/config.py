"""The section "copying" of config.json: neither a serial part nor a window with weights."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mtpc.declared import Strict
from mtpc.draft import MOST
from mtpc.families.family import WithoutSerialPart
from mtpc.serial.config import HiddenSize, VocabSize


class CopyingConfig(WithoutSerialPart, Strict):
    """What is drafted, and for which target."""

    hidden_size: HiddenSize  # d of the target, which engines ask for
    vocab_size: VocabSize  # V of the target
    num_drafts: Annotated[int, Field(ge=1, le=MOST)] = 10  # K, drafts of a step unless the user says otherwise

    @property
    def max_drafts(self) -> int:
        """As many as are ever copied."""
        return MOST
