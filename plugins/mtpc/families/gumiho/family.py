"""Gumiho in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.families.family import Command, Family
from mtpc.families.gumiho.config import GumihoConfig

if TYPE_CHECKING:
    from mtpc.families.drafter import Drafter
    from mtpc.window.part import WindowPart


class Gumiho(Family):
    """Serial layers for the first tokens, parallel heads for the rest, Gumiho paper."""

    name = "gumiho"
    title = "a Gumiho drafter"
    summary = "serial layers, then heads in parallel"
    architecture = "EagleGumihoForCausalLM"
    algorithm = "GUMIHO"
    config = GumihoConfig

    def window(self, config: GumihoConfig) -> WindowPart | None:
        from mtpc.window.parallel import ParallelWindow

        if config.parallel is None:
            return None
        eps = config.rms_norm_eps if config.normed else None
        return ParallelWindow(config.parallel, config.hidden_size, config.vocab_size, eps)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        config = drafter.config
        assert isinstance(config, GumihoConfig)
        layers = f"{config.num_hidden_layers} of kind {config.layer}"
        if config.parallel is None:
            return {"serial layers": layers, "parallel heads": "none: every draft is a step of the layers (EAGLE)"}
        circuit, rank = config.parallel.circuit, config.parallel.rank
        joint = "independent of each other" if circuit == "ff" else f"a circuit {circuit} of rank {rank}"
        return {
            "serial layers": f"{layers}, {config.steps} steps",
            "parallel heads": f"{config.parallel.positions}, {joint}",
        }

    def train(self) -> Command:
        from mtpc.families.gumiho.command import train

        return train

    def convert(self) -> Command:
        from mtpc.families.gumiho.command import convert

        return convert
