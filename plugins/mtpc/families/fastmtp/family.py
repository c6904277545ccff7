"""FastMTP in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.families.family import Command, Family
from mtpc.families.fastmtp.config import FastMTPConfig

if TYPE_CHECKING:
    from mtpc.families.drafter import Drafter

SERIAL = "serial."
BLOCK = "blocks.0."  # the decoder layer's tensors have no name of their own in a checkpoint
PREFIX = "model.mtp_layers.0."


class FastMTP(Family):
    """One MTP layer applied K times, FastMTP paper."""

    name = "fastmtp"
    title = "a FastMTP drafter"
    summary = "one MTP layer, applied again and again"
    architecture = "EagleFastMTPForCausalLM"
    algorithm = "FASTMTP"
    config = FastMTPConfig

    def tensor_name(self, name: str) -> str:
        """As in a FastMTP or MiMo checkpoint."""
        return PREFIX + name.removeprefix(SERIAL).removeprefix(BLOCK)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        config = drafter.config
        assert isinstance(config, FastMTPConfig)
        return {
            "MTP layer": f"of kind {config.layer}, applied once for each draft",
            "steps K": f"trained for {config.num_drafts}; more can be drafted",
        }

    def train(self) -> Command:
        from mtpc.families.fastmtp.command import train

        return train

    def convert(self) -> Command:
        from mtpc.families.fastmtp.command import convert

        return convert
