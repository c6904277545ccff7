"""The section "mtpc" of config.json: a circuit window over the target's state, without a serial part."""

from __future__ import annotations

from mtpc.families.family import WithoutSerialPart
from mtpc.window.config import CircuitConfig


class MTPCConfig(WithoutSerialPart, CircuitConfig):
    """See `CircuitConfig`: nothing but a window."""

    @property
    def max_drafts(self) -> int:
        """The window without the target's own token."""
        return self.window - 1

    @property
    def num_drafts(self) -> int:
        """As many as there can be."""
        return self.max_drafts
