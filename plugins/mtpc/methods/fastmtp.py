"""FastMTP: one layer, applied once for each draft token (section "fastmtp" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mtpc.autoregressive.config import AutoregressiveConfig, LayerConfig, layer_of
from mtpc.draft import MAX_DRAFTS
from mtpc.files.config_model import declared
from mtpc.methods.contract import DraftMethod

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class FastMTPConfig(LayerConfig):
    """See `LayerConfig`: nothing but an autoregressive part of one layer, of as many steps as are asked for."""

    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)]  # K, the steps that it was trained for; more can be drafted

    @property
    def autoregressive(self) -> AutoregressiveConfig:
        """The layer."""
        return AutoregressiveConfig(**self.model_dump(exclude={"num_drafts"}))

    @property
    def draft_steps(self) -> None:
        """As many as are asked for."""
        return

    @property
    def own_drafts(self) -> int:
        """All."""
        return self.num_drafts

    @property
    def max_drafts(self) -> int:
        """As many as any drafter may draft."""
        return MAX_DRAFTS


def config_for(target: Any, num_drafts: int) -> FastMTPConfig:
    """The configuration of a drafter whose layer is like those of a target.

    target: its configuration in transformers.

    Errors: `MTPCError` for a target of a kind that no layer here computes.
    """
    return declared(FastMTPConfig, {**layer_of(target), "num_drafts": num_drafts}, "a layer like the target's")


AUTOREGRESSIVE = "autoregressive."
BLOCK = "blocks.0."  # the decoder layer's tensors have no name of their own in a checkpoint
PREFIX = "model.mtp_layers.0."


class FastMTP(DraftMethod):
    """One MTP layer applied K times, FastMTP paper."""

    name = "fastmtp"
    title = "a FastMTP drafter"
    summary = "one MTP layer, applied again and again"
    architecture = "EagleFastMTPForCausalLM"
    algorithm = "FASTMTP"
    config = FastMTPConfig

    def tensor_name(self, name: str) -> str:
        """As in a FastMTP or MiMo checkpoint."""
        return PREFIX + name.removeprefix(AUTOREGRESSIVE).removeprefix(BLOCK)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        config = drafter.config
        assert isinstance(config, FastMTPConfig)
        return {
            "MTP layer": f"of kind {config.layer}, applied once for each draft",
            "steps K": f"trained for {config.num_drafts}; more can be drafted",
        }
