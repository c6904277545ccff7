"""The section "fastmtp" of config.json: a serial layer, and the number of steps that it was trained for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtpc.errors import MTPCError
from mtpc.serial.config import SerialConfig, layer_of


@dataclass(frozen=True, kw_only=True)
class FastMTPConfig(SerialConfig):
    """See `SerialConfig`: nothing but a serial part, of as many steps as are asked for."""

    num_drafts: int  # K, the steps that it was trained for; more can be drafted

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_drafts < 1:
            raise MTPCError(f"num_drafts must be at least 1, not {self.num_drafts}.")

    @property
    def serial(self) -> SerialConfig:
        """The layer."""
        return self

    @property
    def serial_steps(self) -> None:
        """As many as are asked for."""
        return

    @property
    def max_drafts(self) -> None:
        """There is no limit."""
        return


def config_for(target: Any, num_drafts: int) -> FastMTPConfig:
    """The configuration of a drafter whose layer is like those of a target.

    target: its configuration in transformers.

    Errors: `MTPCError` for a target of a kind that no layer here computes.
    """
    return FastMTPConfig(**layer_of(target), num_drafts=num_drafts)
