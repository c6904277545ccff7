"""MTPC (arXiv 2511.11346): a probabilistic circuit over the target's state (section "mtpc" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from mtpc.methods.contract import DraftMethod, ParallelOnly
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.markov_part import MarkovPart
from mtpc.parallel.part import ParallelPart

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class MTPCConfig(ParallelOnly, CircuitConfig):
    """The keys of an MTPC drafter, in addition to those of a `CircuitConfig`.

    Attributes:
        markov_rank: r of a Markov head, a bias by the previous token (see `MarkovPart`). 0: a circuit.
    """

    markov_rank: Annotated[int, Field(ge=0, le=1 << 12)] = 0

    @model_validator(mode="after")
    def _fits_a_markov_head(self) -> Self:
        fits = self.circuit == "ff" and self.leaves == "target" and self.token_input
        if self.markov_rank and not fits:
            raise ValueError("markov_rank needs the circuit ff, leaves target and token_input")
        return self

    @property
    def max_drafts(self) -> int:
        """The window without x_{t+1}."""
        return self.window - 1

    @property
    def num_drafts(self) -> int:
        """The largest K."""
        return self.max_drafts


class MTPC(DraftMethod):
    """Probabilistic circuits: FF, CP, HMM or BTree (MTPC paper, section 3.2)."""

    name = "mtpc"
    title = "an MTPC drafter"
    summary = "circuits over a window of tokens, drafted in one pass"
    architecture = "EagleMTPCForCausalLM"
    algorithm = "MTPC"
    config = MTPCConfig

    def parallel(self, config: MTPCConfig) -> ParallelPart:
        """Build the untrained circuit part, or Markov head."""
        return MarkovPart(config, config.markov_rank) if config.markov_rank else CircuitPart(config)

    def tensor_name(self, name: str) -> str:
        """Return the tensor's name without the name of the part."""
        return name.removeprefix("parallel.")

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return circuit type and sizes."""
        config = drafter.config
        assert isinstance(config, MTPCConfig)
        markov = f"none: a Markov head of rank {config.markov_rank}"
        is_targets = config.leaves == "target"
        token = f"an input of the trunk{', embedded by the target' * is_targets}"
        return {
            "circuit": markov if config.markov_rank else config.circuit,
            "window n": f"{config.window} tokens: the target's next token and {config.max_drafts} draft tokens",
            "target's next token": token if config.token_input else "evidence of the circuit",
            "rank R": str(config.rank),
            "leaves": "the target's output head" if is_targets else config.leaves,
        }
