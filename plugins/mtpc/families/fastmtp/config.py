"""The section "fastmtp" of config.json: a serial layer, and the number of steps that it was trained for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mtpc.declared import declared
from mtpc.draft import MOST
from mtpc.serial.config import LayerConfig, SerialConfig, layer_of


class FastMTPConfig(LayerConfig):
    """See `LayerConfig`: nothing but a serial part of one layer, of as many steps as are asked for."""

    num_drafts: Annotated[int, Field(ge=1, le=MOST)]  # K, the steps that it was trained for; more can be drafted

    @property
    def serial(self) -> SerialConfig:
        """The layer."""
        return SerialConfig(**self.model_dump(exclude={"num_drafts"}))

    @property
    def serial_steps(self) -> None:
        """As many as are asked for."""
        return

    @property
    def max_drafts(self) -> int:
        """As many as any drafter may draft."""
        return MOST


def config_for(target: Any, num_drafts: int) -> FastMTPConfig:
    """The configuration of a drafter whose layer is like those of a target.

    target: its configuration in transformers.

    Errors: `MTPCError` for a target of a kind that no layer here computes.
    """
    return declared(FastMTPConfig, {**layer_of(target), "num_drafts": num_drafts}, "a layer like the target's")
