"""FastMTP (arXiv 2509.18362): one layer, applied once per draft token (section "fastmtp" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mtpc.autoregressive.config import AutoregressiveConfig, LayerConfig, layer_of
from mtpc.draft import MAX_DRAFTS
from mtpc.files.config_model import validated
from mtpc.methods.contract import DraftMethod

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class FastMTPConfig(LayerConfig):
    """The keys of a FastMTP drafter: one layer (see `LayerConfig`) and its number of draft steps.

    Attributes:
        num_drafts: K, draft steps that it was trained for; more can be drafted.
    """

    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)]

    @property
    def autoregressive(self) -> AutoregressiveConfig:
        """The draft layer."""
        return AutoregressiveConfig(**self.model_dump(exclude={"num_drafts"}))

    @property
    def draft_steps(self) -> None:
        """As many as are requested."""
        return

    @property
    def own_drafts(self) -> int:
        """No draft token needs prompt lookup."""
        return self.num_drafts

    @property
    def max_drafts(self) -> int:
        """No limit of its own."""
        return MAX_DRAFTS


def config_for(target: Any, num_drafts: int) -> FastMTPConfig:
    """Return the configuration of a drafter whose layer has the shape of a target's layers.

    Args:
        target: The target's configuration in transformers.
        num_drafts: K, draft steps to train for.

    Returns:
        The configuration.

    Raises:
        MTPCError: For an unsupported target, see `layer_of`.
    """
    return validated(FastMTPConfig, {**layer_of(target), "num_drafts": num_drafts}, "a layer like the target's")


AUTOREGRESSIVE = "autoregressive."
BLOCK = "blocks.0."  # prefix of the decoder layer's tensors, which published checkpoints do not have
PREFIX = "model.mtp_layers.0."


class FastMTP(DraftMethod):
    """One MTP layer applied K times (FastMTP paper, sections 2.1 and 2.3)."""

    name = "fastmtp"
    title = "a FastMTP drafter"
    summary = "one MTP layer, applied once per draft token"
    architecture = "EagleFastMTPForCausalLM"
    algorithm = "FASTMTP"
    config = FastMTPConfig

    def tensor_name(self, name: str) -> str:
        """Return the name of a tensor in a FastMTP or MiMo checkpoint."""
        return PREFIX + name.removeprefix(AUTOREGRESSIVE).removeprefix(BLOCK)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return layer type and number of draft steps."""
        config = drafter.config
        assert isinstance(config, FastMTPConfig)
        return {
            "MTP layer": f"of type {config.layer}, applied once per draft token",
            "steps K": f"trained for {config.num_drafts}; more can be drafted",
        }
