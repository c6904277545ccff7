"""An example draft method: a draft layer drafts the first token, a circuit all others in one pass."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.methods.contract import DraftMethod
from mtpc.methods.drafter import Drafter
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig


class HybridConfig(AutoregressiveConfig):
    """The section "hybrid" of config.json.

    Attributes:
        circuit: Keys of a `CircuitConfig`, without the sizes of the target.
    """

    circuit: dict[str, Any]

    @field_validator("circuit")
    @classmethod
    def _continues_the_layer(cls, circuit: dict[str, Any]) -> dict[str, Any]:
        if CircuitConfig.model_validate({**circuit, "hidden_size": 1, "vocab_size": 1}).window < 2:
            raise ValueError("circuit must have a window of at least 2")
        return circuit

    @property
    def circuit_config(self) -> CircuitConfig:
        """The circuit over the token that the draft layer drafts and those after it."""
        sizes = {"hidden_size": self.hidden_size, "vocab_size": self.vocab_size}
        return CircuitConfig.model_validate({**self.circuit, **sizes})

    @property
    def autoregressive(self) -> AutoregressiveConfig:
        """The draft layer."""
        return self

    @property
    def draft_steps(self) -> int:
        """The layer drafts one token."""
        return 1

    @property
    def max_drafts(self) -> int:
        """One token of the draft layer and the rest of the circuit's window."""
        drafts: int = self.circuit["window"]
        return drafts

    @property
    def own_drafts(self) -> int:
        """No draft token needs prompt lookup."""
        return self.num_drafts

    @property
    def num_drafts(self) -> int:
        """K unless the user sets it."""
        return self.max_drafts


class Hybrid(DraftMethod):
    """One autoregressive draft step, then a circuit as the parallel part."""

    name = "hybrid"
    title = "a hybrid drafter"
    summary = "one step of a layer, then a circuit"
    architecture = "EagleHybridForCausalLM"
    algorithm = "HYBRID"
    config = HybridConfig

    def parallel(self, config: HybridConfig) -> CircuitPart:
        """Return the untrained circuit part."""
        return CircuitPart(config.circuit_config)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return what `mtpc inspect` prints."""
        circuit: dict[str, Any] = drafter.config.circuit  # type: ignore[attr-defined]
        return {"circuit": f"{circuit['circuit']} after one step of the draft layer"}
