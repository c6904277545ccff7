"""What a window is: a circuit, its sizes, and the head or heads that parameterise it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mtpc.circuits import build_circuit
from mtpc.draft import MAX_DRAFTS
from mtpc.files.config_model import Strict
from mtpc.files.target import HiddenSize, VocabSize

Features = Annotated[int, Field(ge=1, le=1 << 16)]


class CircuitConfig(Strict):
    """The keys of a circuit window in a drafter's section of config.json."""

    circuit: str  # of `mtpc.circuits`: "ff", "cp", "hmm" or "btree"
    window: Annotated[int, Field(ge=1, le=MAX_DRAFTS)]  # n, tokens of one window, the token that is evidence included
    rank: Annotated[int, Field(ge=1, le=1 << 12)]  # R, components per position
    hidden_size: HiddenSize  # d of the target
    vocab_size: VocabSize  # V of the target
    leaves: Literal["shared", "table"] = "shared"  # one unembedding for all leaves, or a table of each (paper)
    leaf_features: Features = 128  # m of shared leaves
    component_features: Features = 32  # k of shared leaves
    sum_features: Annotated[int, Field(ge=0, le=1 << 16)] = 32  # 0: sum weights straight from the hidden state (paper)
    trunk_size: Annotated[int, Field(ge=0, le=1 << 20)] = 0  # width of the residual layer in front, 0: none (paper)
    token_input: bool = False  # the trunk reads the first token; the circuit then starts after it

    @model_validator(mode="after")
    def _is_a_circuit(self) -> Self:
        if self.token_input and (self.trunk_size == 0 or self.window < 2):
            raise ValueError(
                "token_input needs a trunk_size above 0, where the token enters, and a window of at least 2"
            )
        build_circuit(self.circuit, self.circuit_window, self.rank)
        return self

    @property
    def circuit_window(self) -> int:
        """Tokens that the circuit is a distribution over, the last ones of the window."""
        return self.window - 1 if self.token_input else self.window


class ParallelConfig(Strict):
    """The keys of heads in parallel in a drafter's section of config.json."""

    positions: Annotated[int, Field(ge=1, le=MAX_DRAFTS - 1)]  # n, drafts of the window
    blocks: Annotated[int, Field(ge=0, le=64)] = 5  # residual layers of each head
    circuit: str = "ff"  # of `mtpc.circuits`: "ff" is Gumiho's independent heads
    rank: Annotated[int, Field(ge=1, le=256)] = 1  # R, components per position
    component_features: Features = 64  # of what a component adds to a position's state
    sum_features: Features = 32  # behind the sum weights

    @model_validator(mode="after")
    def _is_a_circuit(self) -> Self:
        build_circuit(self.circuit, self.positions, self.rank)
        return self
