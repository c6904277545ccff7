"""The section "mtpc" of config.json: a circuit window over the target's state, without a serial part."""

from __future__ import annotations

from dataclasses import dataclass

from mtpc.window.config import CircuitConfig


@dataclass(frozen=True, kw_only=True)
class MTPCConfig(CircuitConfig):
    """See `CircuitConfig`: nothing but a window."""

    @property
    def serial(self) -> None:
        """There is none."""
        return

    @property
    def serial_steps(self) -> int:
        """None."""
        return 0

    @property
    def max_drafts(self) -> int:
        """The window without the target's own token."""
        return self.window - 1

    @property
    def num_drafts(self) -> int:
        """As many as there can be."""
        return self.max_drafts
