"""Gumiho (arXiv 2503.10135): layers for the first draft tokens, parallel heads for the others (section "gumiho")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.draft import MAX_DRAFTS
from mtpc.methods.contract import DraftMethod
from mtpc.parallel.config import ParallelConfig
from mtpc.parallel.independent import IndependentPart
from mtpc.parallel.part import ParallelPart

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


EAGLE_DRAFTS = 5  # K of a drafter without parallel heads unless the user sets it


class GumihoConfig(AutoregressiveConfig):
    """The keys of a Gumiho drafter, in addition to those of its layers (see `AutoregressiveConfig`).

    Attributes:
        steps: s, draft tokens of the autoregressive part.
        parallel: The parallel heads. None: every draft token is one of the layers, as many as are requested (EAGLE).
    """

    steps: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 2
    parallel: ParallelConfig | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.parallel is not None and self.steps + self.parallel.positions > MAX_DRAFTS:
            raise ValueError(f"the sum of steps and parallel.positions must be at most {MAX_DRAFTS}")
        return self

    @property
    def autoregressive(self) -> AutoregressiveConfig:
        """The draft layers."""
        return self

    @property
    def draft_steps(self) -> int | None:
        """s, 2 in arXiv 2503.10135; without parallel heads as many as are requested."""
        return None if self.parallel is None else self.steps

    @property
    def max_drafts(self) -> int:
        """Draft tokens of both parts; without parallel heads there is no limit of its own."""
        return MAX_DRAFTS if self.parallel is None else self.steps + self.parallel.positions

    @property
    def own_drafts(self) -> int:
        """No draft token needs prompt lookup."""
        return self.num_drafts

    @property
    def num_drafts(self) -> int:
        """Draft tokens of both parts."""
        return EAGLE_DRAFTS if self.parallel is None else self.max_drafts


class Gumiho(DraftMethod):
    """Autoregressive layers for the first tokens, parallel heads for the rest (Gumiho paper, section 3.3)."""

    name = "gumiho"
    title = "a Gumiho drafter"
    summary = "draft layers, then parallel heads"
    architecture = "EagleGumihoForCausalLM"
    algorithm = "GUMIHO"
    config = GumihoConfig

    def parallel(self, config: GumihoConfig) -> ParallelPart | None:
        """Build the parallel heads; None for an EAGLE drafter."""
        if config.parallel is None:
            return None
        eps = config.rms_norm_eps if config.normed else None
        return IndependentPart(config.parallel, config.hidden_size, config.vocab_size, eps)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return layer types and numbers of both parts."""
        config = drafter.config
        assert isinstance(config, GumihoConfig)
        layers = f"{config.num_hidden_layers} of type {config.layer}"
        if config.parallel is None:
            return {"draft layers": layers, "parallel heads": "none: every draft token is one of the layers (EAGLE)"}
        circuit, rank = config.parallel.circuit, config.parallel.rank
        joint = "independent of each other" if circuit == "ff" else f"a circuit {circuit} of rank {rank}"
        return {
            "draft layers": f"{layers}, {config.steps} steps",
            "parallel heads": f"{config.parallel.positions}, {joint}",
        }
