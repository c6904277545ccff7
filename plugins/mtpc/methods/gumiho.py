"""Gumiho: layers for the first draft tokens, parallel heads for the others (section "gumiho" of config.json)."""

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


EAGLE_DRAFTS = 5  # of a drafter without parallel heads, unless the user says otherwise


class GumihoConfig(AutoregressiveConfig):
    """See `AutoregressiveConfig`: the layers of the autoregressive part."""

    steps: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 2  # s, drafts of the autoregressive part
    parallel: ParallelConfig | None = (
        None  # None: all drafts are the autoregressive part's, as many as are asked for (EAGLE)
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.parallel is not None and self.steps + self.parallel.positions > MAX_DRAFTS:
            raise ValueError(f"steps and parallel.positions must be no more than {MAX_DRAFTS} together")
        return self

    @property
    def autoregressive(self) -> AutoregressiveConfig:
        """The layers."""
        return self

    @property
    def draft_steps(self) -> int | None:
        """Two in the paper; without parallel heads as many as are asked for."""
        return None if self.parallel is None else self.steps

    @property
    def max_drafts(self) -> int:
        """Of both parts; without parallel heads as many as any drafter may draft."""
        return MAX_DRAFTS if self.parallel is None else self.steps + self.parallel.positions

    @property
    def own_drafts(self) -> int:
        """All."""
        return self.num_drafts

    @property
    def num_drafts(self) -> int:
        """Of both parts."""
        return EAGLE_DRAFTS if self.parallel is None else self.max_drafts


class Gumiho(DraftMethod):
    """Serial layers for the first tokens, parallel heads for the rest, Gumiho paper."""

    name = "gumiho"
    title = "a Gumiho drafter"
    summary = "draft layers, then heads in parallel"
    architecture = "EagleGumihoForCausalLM"
    algorithm = "GUMIHO"
    config = GumihoConfig

    def parallel(self, config: GumihoConfig) -> ParallelPart | None:
        if config.parallel is None:
            return None
        eps = config.rms_norm_eps if config.normed else None
        return IndependentPart(config.parallel, config.hidden_size, config.vocab_size, eps)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        config = drafter.config
        assert isinstance(config, GumihoConfig)
        layers = f"{config.num_hidden_layers} of kind {config.layer}"
        if config.parallel is None:
            return {"draft layers": layers, "parallel heads": "none: every draft is a step of the layers (EAGLE)"}
        circuit, rank = config.parallel.circuit, config.parallel.rank
        joint = "independent of each other" if circuit == "ff" else f"a circuit {circuit} of rank {rank}"
        return {
            "draft layers": f"{layers}, {config.steps} steps",
            "parallel heads": f"{config.parallel.positions}, {joint}",
        }
