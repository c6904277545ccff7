"""The section "copying" of config.json: neither a serial part nor a window with weights."""

from __future__ import annotations

from dataclasses import dataclass

from mtpc.copying.request import MOST
from mtpc.directory.checked_json import check_types
from mtpc.errors import MTPCError
from mtpc.families.family import WithoutSerialPart


@dataclass(frozen=True, kw_only=True)
class CopyingConfig(WithoutSerialPart):
    """What is drafted, and for which target."""

    hidden_size: int  # d of the target, which engines ask for
    vocab_size: int  # V of the target
    num_drafts: int = 10  # K, drafts of a step at most, unless the user says otherwise

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("hidden_size", "vocab_size", "num_drafts"):
            if getattr(self, name) < 1:
                raise MTPCError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.num_drafts > MOST:
            raise MTPCError(f"num_drafts must be at most {MOST}, not {self.num_drafts}.")

    @property
    def max_drafts(self) -> int:
        """As many as are ever copied."""
        return MOST
