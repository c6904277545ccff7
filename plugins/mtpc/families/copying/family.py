"""Copying alone in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.families.copying.config import CopyingConfig
from mtpc.families.family import Command, Family

if TYPE_CHECKING:
    from mtpc.families.drafter import Drafter
    from mtpc.window.part import WindowPart


class CopyingAlone(Family):
    """Neither part: the component that copies (see `mtpc.copying`) has no other beside it."""

    name = "copying"
    title = "a copying drafter"
    summary = "no trained part: what the request's own text went on with before"
    architecture = "EagleCopyingForCausalLM"
    algorithm = "COPYING"
    config = CopyingConfig
    copies = True

    def window(self, config: CopyingConfig) -> WindowPart:
        from mtpc.copying.window import CopiedWindow

        return CopiedWindow(config.vocab_size, config.num_drafts)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        return {"drafts": f"at most {drafter.config.num_drafts}, copied from the request's own text"}

    def train(self) -> Command:
        from mtpc.families.copying.command import train

        return train
