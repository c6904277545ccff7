"""MTPC in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.families.family import Command, Family
from mtpc.families.mtpc.config import MTPCConfig

if TYPE_CHECKING:
    from mtpc.families.drafter import Drafter
    from mtpc.window.part import WindowPart


class MTPC(Family):
    """Probabilistic circuits (FF, CP, HMM, BTree), MTPC paper."""

    name = "mtpc"
    title = "an MTPC drafter"
    summary = "circuits over a window of tokens, in one shot"
    architecture = "EagleMTPCForCausalLM"
    algorithm = "MTPC"
    config = MTPCConfig

    def window(self, config: MTPCConfig) -> WindowPart:
        from mtpc.window.circuit import CircuitWindow

        return CircuitWindow(config)

    def tensor_name(self, name: str) -> str:
        return name.removeprefix("window.")

    def facts(self, drafter: Drafter) -> dict[str, str]:
        config = drafter.config
        assert isinstance(config, MTPCConfig)
        return {
            "circuit": config.circuit,
            "window n": f"{config.window} tokens: the target's own next token and {config.max_drafts} drafts",
            "target's own token": "an input of the trunk" if config.token_input else "evidence of the circuit",
            "rank R": str(config.rank),
            "leaves": config.leaves,
        }

    def train(self) -> Command:
        from mtpc.families.mtpc.command import train

        return train
