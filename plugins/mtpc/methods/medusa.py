"""Medusa (arXiv 2401.10774): independent heads over the target's last state (section "medusa" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.methods.contract import DraftMethod, ParallelOnly
from mtpc.parallel.config import MedusaHeadsConfig
from mtpc.parallel.medusa_part import MedusaPart
from mtpc.parallel.part import ParallelPart

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class MedusaConfig(ParallelOnly, MedusaHeadsConfig):
    """The keys of a Medusa drafter, see `MedusaHeadsConfig`."""

    @property
    def max_drafts(self) -> int:
        """One token of each head."""
        return self.heads

    @property
    def num_drafts(self) -> int:
        """One token of each head."""
        return self.heads


class Medusa(DraftMethod):
    """One head for each draft token, all over the same state of the target."""

    name = "medusa"
    title = "a Medusa drafter"
    summary = "published Medusa heads, each of which drafts one token"
    architecture = "EagleMedusaForCausalLM"
    algorithm = "MEDUSA"
    config = MedusaConfig

    def parallel(self, config: MedusaConfig) -> ParallelPart:
        """Build the untrained heads."""
        return MedusaPart(config)

    def tensor_name(self, name: str) -> str:
        """Return the tensor's name without the name of the part."""
        return name.removeprefix("parallel.")

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return the number of heads and their layers."""
        config = drafter.config
        assert isinstance(config, MedusaConfig)
        return {
            "heads": f"{config.heads}, independent of each other",
            "residual layers": f"{config.layers} of each head",
            "output layers": "one of all heads" if config.shared_output else "one of each head",
        }
