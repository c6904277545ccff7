"""Configuration of a parallel part: a circuit, its sizes, and the heads that parameterize it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mtpc.circuits import CIRCUITS, build_circuit
from mtpc.draft import MAX_DRAFTS
from mtpc.files.config_model import Strict
from mtpc.files.target import HiddenSize, VocabSize

Features = Annotated[int, Field(ge=1, le=1 << 16)]


class CircuitConfig(Strict):
    """The keys of a circuit in a drafter's section of config.json.

    Attributes:
        circuit: "ff", "cp", "hmm" or "btree".
        window: n, tokens that are predicted, x_{t+1} included.
        rank: R, components per position.
        hidden_size: d of the target.
        vocab_size: V of the target.
        leaves: "shared": one unembedding for all leaves; "table": one per position and component (MTPC paper);
            "target": the target's output head (Basharin et al. 2025, section 3.2), of the draft vocabulary's tokens.
        leaf_features: m, features of shared leaves, or of a position with the target's output head.
        component_features: k, features of a component, unless leaves is "table".
        sum_features: Features in front of the sum weights; 0: sum weights directly from the hidden state (MTPC paper).
        trunk_size: Width of the residual layer in front; 0: none (MTPC paper).
        token_input: Whether the trunk reads x_{t+1}; the circuit then starts after it. With leaves from the target's
            output head it reads the target's embedding of x_{t+1}, otherwise one of its own.
    """

    circuit: str
    window: Annotated[int, Field(ge=1, le=MAX_DRAFTS)]
    rank: Annotated[int, Field(ge=1, le=1 << 12)]
    hidden_size: HiddenSize
    vocab_size: VocabSize
    leaves: Literal["shared", "table", "target"] = "shared"
    leaf_features: Features = 128
    component_features: Features = 32
    sum_features: Annotated[int, Field(ge=0, le=1 << 16)] = 32
    trunk_size: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    token_input: bool = False

    @model_validator(mode="after")
    def _is_a_circuit(self) -> Self:
        if self.token_input and (self.trunk_size == 0 or self.window < 2):
            raise ValueError("token_input needs a trunk_size above 0 and a window of at least 2")
        build_circuit(self.circuit, self.circuit_window, self.rank)
        return self

    @property
    def circuit_window(self) -> int:
        """Tokens that the circuit is a distribution over: the window, without x_{t+1} where the trunk reads it."""
        return self.window - 1 if self.token_input else self.window


class ByteCircuitConfig(CircuitConfig):
    """The keys of a circuit over bytes, in addition to those of a `CircuitConfig`.

    Attributes:
        circuit: "ff", "cp" or "hmm".
        window: n, symbols that are predicted, those of x_{t+1} included: bytes, and the end of each token. At least 4.
        token_input: Always false: the symbols of x_{t+1} are evidence.
        text_bytes: Bytes of all tokens of the target together.
        target_tokens: SHA-256 of the target's vocabulary, see `TokenBytes.digest`.
    """

    text_bytes: Annotated[int, Field(ge=1, le=1 << 28)]
    target_tokens: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _is_over_bytes(self) -> Self:
        if not CIRCUITS[self.circuit].is_chain or self.token_input or self.leaves == "target" or self.window < 4:
            raise ValueError(
                "a circuit over bytes is ff, cp or hmm, of a window of at least 4, without token_input and without "
                "leaves from the target"
            )
        return self

    @property
    def max_drafts(self) -> int:
        """Tokens of one byte that fit into the window after x_{t+1}; every token has at least two symbols."""
        return self.window // 2 - 1


class ParallelConfig(Strict):
    """The keys of parallel heads in a drafter's section of config.json.

    Attributes:
        positions: n, draft tokens of the parallel heads.
        blocks: Residual layers of each head.
        circuit: "ff" for Gumiho's independent heads, or "cp", "hmm" or "btree".
        rank: R, components per position.
        component_features: Features of what a component adds to a position's state.
        sum_features: Features in front of the sum weights.
    """

    positions: Annotated[int, Field(ge=1, le=MAX_DRAFTS - 1)]
    blocks: Annotated[int, Field(ge=0, le=64)] = 5
    circuit: str = "ff"
    rank: Annotated[int, Field(ge=1, le=256)] = 1
    component_features: Features = 64
    sum_features: Features = 32

    @model_validator(mode="after")
    def _is_a_circuit(self) -> Self:
        build_circuit(self.circuit, self.positions, self.rank)
        return self


class MedusaHeadsConfig(Strict):
    """The keys of Medusa's heads in a drafter's section of config.json.

    Attributes:
        heads: n, heads and draft tokens.
        layers: Residual layers of each head.
        shared_output: Whether all heads have one output layer; otherwise each has its own.
        hidden_size: d of the target.
        vocab_size: V of the target.
    """

    heads: Annotated[int, Field(ge=1, le=MAX_DRAFTS)]
    layers: Annotated[int, Field(ge=0, le=64)] = 1
    shared_output: bool = False
    hidden_size: HiddenSize
    vocab_size: VocabSize
