"""MTPC: a probabilistic circuit over the target's state, no autoregressive part (section "mtpc" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpc.methods.contract import DraftMethod, ParallelOnly
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.part import ParallelPart

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class MTPCConfig(ParallelOnly, CircuitConfig):
    """See `CircuitConfig`: nothing but a window."""

    @property
    def max_drafts(self) -> int:
        """The window without the target's own token."""
        return self.window - 1

    @property
    def own_drafts(self) -> int:
        """All."""
        return self.num_drafts

    @property
    def num_drafts(self) -> int:
        """As many as there can be."""
        return self.max_drafts


class MTPC(DraftMethod):
    """Probabilistic circuits (FF, CP, HMM, BTree), MTPC paper."""

    name = "mtpc"
    title = "an MTPC drafter"
    summary = "circuits over a window of tokens, in one shot"
    architecture = "EagleMTPCForCausalLM"
    algorithm = "MTPC"
    config = MTPCConfig

    def parallel(self, config: MTPCConfig) -> ParallelPart:
        return CircuitPart(config)

    def tensor_name(self, name: str) -> str:
        return name.removeprefix("parallel.")

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
