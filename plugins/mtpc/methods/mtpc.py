"""MTPC (arXiv 2511.11346): a probabilistic circuit over the target's state (section "mtpc" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.draft import MAX_DRAFTS
from mtpc.methods.contract import DraftMethod
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.markov_part import MarkovPart
from mtpc.parallel.part import ParallelPart

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class MTPCConfig(CircuitConfig):
    """The keys of an MTPC drafter, in addition to those of a `CircuitConfig`.

    Attributes:
        window: n, tokens that are predicted, x_{t+1} included: at least 2.
        markov_rank: r of a Markov head, a bias by the previous token (see `MarkovPart`). 0: a circuit.
        lora: The target's last layers with adapters, whose output the circuit reads (MTPC paper, section 4.4); None:
            the circuit reads the target's own last state.
    """

    window: Annotated[int, Field(ge=2, le=MAX_DRAFTS)]
    markov_rank: Annotated[int, Field(ge=0, le=1 << 12)] = 0
    lora: LoRALayersConfig | None = None

    @model_validator(mode="after")
    def _fits_a_markov_head(self) -> Self:
        fits = self.circuit == "ff" and self.leaves == "target" and self.token_input
        if self.markov_rank and not fits:
            raise ValueError("markov_rank needs the circuit ff, leaves target and token_input")
        return self

    @model_validator(mode="after")
    def _is_of_one_target(self) -> Self:
        if self.lora is not None:
            for name in ("hidden_size", "vocab_size"):
                if getattr(self.lora, name) != getattr(self, name):
                    raise ValueError(f"lora.{name} must be {name}, {getattr(self, name)}")
        return self

    @property
    def autoregressive(self) -> LoRALayersConfig | None:
        """The adapted layers, which draft nothing."""
        return self.lora

    @property
    def draft_steps(self) -> int:
        """There are no autoregressive draft steps."""
        return 0

    @property
    def own_drafts(self) -> int:
        """No draft token needs prompt lookup."""
        return self.num_drafts

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
            **lora_facts(config.lora),
        }


def lora_facts(lora: LoRALayersConfig | None) -> dict[str, str]:
    """Return the fact for `mtpc inspect` about adapted layers; empty without any."""
    if lora is None:
        return {}
    numbers = f"{lora.num_hidden_layers} of {lora.target_layers}"
    return {"LoRA": f"last {numbers} layers of the target, rank {lora.rank}, on {', '.join(lora.modules)}"}
